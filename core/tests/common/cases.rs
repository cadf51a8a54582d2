// SPDX-License-Identifier: MPL-2.0
//! How many cases of a property are tried.

use proptest::prelude::ProptestConfig;

/// So many, or what `PROPTEST_CASES` says: fewer where each takes long, such as with valgrind, QEMU and Miri.
pub fn cases(usual: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { config.cases } else { usual };
    ProptestConfig { cases, ..config }
}
