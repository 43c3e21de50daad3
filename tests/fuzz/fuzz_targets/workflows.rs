#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| aod_fuzz::workflows::check(bytes));
