//! The description of the API is what is checked in.

use std::path::Path;

/// Run with `AOD_UPDATE_CONTRACTS=1` to write it anew.
#[test]
fn the_description_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/contracts/openapi.json");
    let document = aod_gateway::openapi_document();
    if std::env::var_os("AOD_UPDATE_CONTRACTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, document).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == document,
        "{} is out of date: AOD_UPDATE_CONTRACTS=1 writes it anew",
        path.display()
    );
}
