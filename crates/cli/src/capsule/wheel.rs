//! The wheel of the Python SDK, which capsules install from `vendor/` in their directory.

/// Its file name.
pub(crate) const NAME: &str = env!("AOD_WHEEL_NAME");

/// Its bytes.
pub(crate) const BYTES: &[u8] = include_bytes!(env!("AOD_WHEEL"));

/// Where a `Dockerfile` looks for it.
pub(crate) const DIRECTORY: &str = "vendor";

/// How its name begins in any version.
const NAME_PREFIX: &str = "aod_capsule-";

/// Whether the image that `dockerfile` describes is made with the wheel.
pub(crate) fn is_wanted(dockerfile: &str) -> bool {
    dockerfile.contains(&format!("{DIRECTORY}/{NAME_PREFIX}"))
}

/// Whether `name`, a file of a capsule's directory, is the wheel in some version.
pub(crate) fn is_one(name: &str) -> bool {
    name.strip_prefix(DIRECTORY)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|file| file.starts_with(NAME_PREFIX) && file.contains("-py3-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_name_is_one_that_is_looked_for() {
        assert!(is_one(&format!("{DIRECTORY}/{NAME}")));
        assert!(!is_one("vendor/other-1-py3-none-any.whl") && !is_one(NAME));
        assert!(is_wanted("COPY vendor/aod_capsule-*.whl /wheels/"));
    }
}
