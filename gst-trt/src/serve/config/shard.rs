// SPDX-License-Identifier: MPL-2.0
//! Which sources of a file one of several services runs that have the same file.
//!
//! Each replica finds out by itself, from the names in the file and the number of replicas. Rendezvous hashing (Thaler and
//! Ravishankar, 1996) gives every source a number for every replica. Here it is counted out: replica `k` takes of the sources of
//! all before it those with the largest numbers, one in `k + 1`. So one more replica moves just its own part, and a source that
//! is added or removed moves hardly another one. The plain form, in which the largest number of a source decides, moves
//! none then, but spreads 40 sources on 5 replicas as unevenly as 3 to 10, where a GPU takes just so many.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

use super::secrets;

/// One of several services with the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Counts from 0.
    pub ordinal: u32,
    pub replicas: u32,
}

/// More replicas than anybody has: a number beyond it is a mistake.
const MOST_REPLICAS: u32 = 10_000;

impl Shard {
    /// `ORDINAL/REPLICAS`, in which there may be variables of the environment.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expanded = secrets::expand(text)?;
        let numbers = expanded.split_once('/').and_then(|(ordinal, replicas)| {
            let ordinal = ordinal.trim().parse().ok()?;
            Some(Shard { ordinal, replicas: replicas.trim().parse().ok()? })
        });
        numbers.filter(|shard| (1..=MOST_REPLICAS).contains(&shard.replicas)).ok_or_else(|| {
            let shown: String = expanded.chars().take(64).collect();
            format!(
                "“{shown}” is no shard. Write the ordinal of this replica, from 0, and the number of replicas: \
                 shard = \"0/3\", or \"${{POD_INDEX}}/3\" with a variable of the environment"
            )
        })
    }

    /// Whether there is no such replica any more. It ends soon, and has no sources until then.
    pub fn is_beyond(&self) -> bool {
        self.ordinal >= self.replicas
    }

    /// Those of the sources that are this replica's.
    pub fn own<'a>(&self, sources: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let mut own = if self.ordinal == 0 { sources.clone() } else { BTreeSet::new() };
        for replica in self.ordinal.max(1)..self.replicas {
            let mut order: Vec<_> = sources.iter().copied().collect();
            order.sort_by_key(|source| (Reverse(number(source, replica)), *source));
            order.truncate(sources.len() / (replica as usize + 1));
            if replica == self.ordinal {
                own.extend(order);
            } else {
                order.into_iter().for_each(|source| {
                    own.remove(source);
                });
            }
        }
        own
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ordinal, self.replicas)
    }
}

/// The number of a source for a replica: the same in every build and on every machine.
fn number(source: &str, replica: u32) -> u64 {
    mixed(text_hash(source) ^ mixed(replica.into()))
}

/// FNV-1a of 64 bits (Fowler, Noll, Vo).
pub fn text_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The step of splitmix64 (Steele, Lea, Flood 2014): FNV alone hardly changes with the last letter.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize, prefix: &str) -> Vec<String> {
        (0..count).map(|number| format!("{prefix}{number}")).collect()
    }

    /// The replica of each source, which is one.
    fn places(names: &[String], replicas: u32) -> Vec<u32> {
        let sources: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let own: Vec<_> = (0..replicas).map(|ordinal| Shard { ordinal, replicas }.own(&sources)).collect();
        let place = |name: &String| {
            let mut places = (0..replicas).filter(|ordinal| own[*ordinal as usize].contains(name.as_str()));
            let place = places.next().expect("each source is somewhere");
            assert_eq!(places.next(), None, "{name} is at one place");
            place
        };
        names.iter().map(place).collect()
    }

    fn moved(before: &[u32], after: &[u32]) -> usize {
        before.iter().zip(after).filter(|(before, after)| before != after).count()
    }

    #[test]
    fn one_more_replica_moves_its_own_part_alone() {
        for prefix in ["cam-", "gate", "c0", "Straße "] {
            let names = names(40, prefix);
            for replicas in 1..12 {
                let (before, after) = (places(&names, replicas), places(&names, replicas + 1));
                assert_eq!(moved(&before, &after), 40 / (replicas as usize + 1), "{prefix} {replicas}");
                let is_to_new = |(before, after): (&u32, &u32)| before == after || *after == replicas;
                assert!(before.iter().zip(&after).all(is_to_new), "what moves goes to the new one");
            }
        }
    }

    #[test]
    fn one_more_source_moves_hardly_another_one() {
        let mut moves = 0;
        for round in 0..50 {
            let mut names = names(40, &format!("site-{round}-"));
            let before = places(&names, 5);
            names.push(format!("new-{round}"));
            moves += moved(&before, &places(&names, 5));
        }
        assert!(moves <= 75, "{moves} in 50 rounds");
    }

    #[test]
    fn replicas_have_about_as_many() {
        let places = places(&names(250, "camera-"), 5);
        let counts: Vec<_> = (0..5).map(|replica| places.iter().filter(|place| **place == replica).count()).collect();
        assert!(counts.iter().all(|count| (38..=62).contains(count)), "{counts:?}");
    }

    /// A change here would move sources at every update of the program.
    #[test]
    fn places_are_the_same_in_every_version() {
        assert_eq!(text_hash("foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(mixed(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(places(&names(12, "cam-"), 3), PLACES);
    }

    const PLACES: [u32; 12] = [2, 2, 0, 0, 1, 1, 0, 2, 2, 1, 0, 1];

    #[test]
    fn a_replica_that_is_no_more_has_no_sources() {
        let names = names(4, "cam-");
        let sources = names.iter().map(String::as_str).collect();
        let shard = Shard::parse("3/3").unwrap();
        assert!(shard.is_beyond() && shard.own(&sources).is_empty());
        assert!(Shard { ordinal: 0, replicas: 8 }.own(&BTreeSet::new()).is_empty());
        assert!(!Shard::parse(" 2 / 3 ").unwrap().is_beyond());
    }

    #[test]
    fn what_is_no_shard_is_refused() {
        for text in ["", "1", "/", "a/b", "-1/3", "1/0", "0/99999", "1/2/3", "0/4294967296"] {
            let error = Shard::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("“{text}” is no shard. Write")), "{error}");
        }
        let error = Shard::parse("${NO_SUCH_INDEX}/3").unwrap_err();
        assert!(error.contains("the environment has no variable NO_SUCH_INDEX"), "{error}");
    }
}
