//! Compiled schemas in memory.

use std::collections::HashMap;
use std::sync::Mutex;

use aod_domain::contract::Contract;
use aod_domain::digest::Digest;

use crate::lock::lock;

/// Maximum number of compiled schemas: a host runs few capsules concurrently.
const CONTRACTS_MAX: usize = 256;

/// The compiled schemas, by digest.
#[derive(Debug, Default)]
pub(crate) struct Contracts(Mutex<HashMap<Digest, Contract>>);

impl Contracts {
    pub(crate) fn get(&self, schema: Digest) -> Option<Contract> {
        lock(&self.0).get(&schema).cloned()
    }

    pub(crate) fn insert(&self, schema: Digest, contract: Contract) {
        let mut contracts = lock(&self.0);
        if contracts.len() >= CONTRACTS_MAX {
            contracts.clear();
        }
        contracts.insert(schema, contract);
    }
}
