// SPDX-License-Identifier: MPL-2.0
//! Tables of identities that elements share: those with the same name in `identities`, anywhere in the process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::identity::options::difference;
use gsttrt_core::identity::{Identities, IdentityOptions};

/// What a name stands for, as long as an element or the program has it.
struct SharedIdentities {
    name: String,
    table: Weak<Identities>,
    /// It is the program's, which has its options.
    is_offered: bool,
}

static TABLES: Mutex<Vec<SharedIdentities>> = Mutex::new(Vec::new());

/// Those that are in use.
fn tables() -> MutexGuard<'static, Vec<SharedIdentities>> {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.retain(|shared| shared.table.strong_count() > 0);
    tables
}

/// The table of that name. The first element makes it.
///
/// # Errors
/// `Settings`, where the name is in use with other options, or these make no sense.
pub fn join(name: &str, options: IdentityOptions) -> Result<Arc<Identities>> {
    let mut tables = tables();
    let known = tables.iter().find(|shared| shared.name == name);
    if let Some((table, is_offered)) = known.and_then(|shared| Some((shared.table.upgrade()?, shared.is_offered))) {
        let other = difference(&table.options(), &options).filter(|_| !is_offered);
        let Some((property, first, this)) = other else { return Ok(table) };
        let what = format!("The identities “{name}” are in use with {property}={first}, not {this}");
        return Err(Error::new(ErrorKind::Settings, what)
            .remedy("Give elements that share identities the same properties, or another name in identities"));
    }
    let table = Identities::new(options)?;
    tables.push(SharedIdentities { name: name.into(), table: Arc::downgrade(&table), is_offered: false });
    Ok(table)
}

/// Lets a name stand for a table of the program, whatever the properties of elements that join it. It does so as long as the program
/// or an element has the table.
pub fn offer(name: &str, table: &Arc<Identities>) {
    let mut tables = tables();
    tables.retain(|shared| shared.name != name);
    tables.push(SharedIdentities { name: name.into(), table: Arc::downgrade(table), is_offered: true });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_table() {
        let options = IdentityOptions { looks: 5, ..IdentityOptions::default() };
        let first = join("sharing-one", options.clone()).unwrap();
        assert!(Arc::ptr_eq(&first, &join("sharing-one", options.clone()).unwrap()));
        assert!(!Arc::ptr_eq(&first, &join("sharing-other", options.clone()).unwrap()));
        let error = join("sharing-one", IdentityOptions::default()).unwrap_err().message();
        assert!(error.contains("“sharing-one” are in use with identity-looks=5, not 3"), "{error}");
        // It ends with the last one who has it.
        drop(first);
        assert_eq!(join("sharing-one", IdentityOptions::default()).unwrap().options().looks, 3);
    }

    #[test]
    fn a_table_of_the_program_has_its_own_options() {
        let options = IdentityOptions { looks: 5, ..IdentityOptions::default() };
        let own = Identities::new(options).unwrap();
        offer("sharing-offered", &own);
        assert!(Arc::ptr_eq(&own, &join("sharing-offered", IdentityOptions::default()).unwrap()));
        let other = Identities::new(IdentityOptions::default()).unwrap();
        offer("sharing-offered", &other);
        assert!(Arc::ptr_eq(&other, &join("sharing-offered", IdentityOptions::default()).unwrap()));
    }
}
