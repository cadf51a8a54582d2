// SPDX-License-Identifier: MPL-2.0
//! Which recordings are removed: by their age, by the bytes of a source and of all, and by what is free on the disk.

use std::collections::BTreeMap;
use std::time::Duration;

use super::catalogue::{Entries, in_order};
use super::moment::UtcTime;

/// What is kept of a source. What is left out has no limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeepLimits {
    pub age: Option<Duration>,
    pub bytes: Option<u64>,
    /// Of all sources in the folder.
    pub total_bytes: Option<u64>,
    /// What stays free on the disk.
    pub free_bytes: Option<u64>,
}

/// What is kept in a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FolderLimits {
    /// Of sources that are configured.
    pub of_sources: BTreeMap<String, KeepLimits>,
    /// Of all others, such as those that were configured before.
    pub of_others: KeepLimits,
}

impl FolderLimits {
    fn all(&self) -> impl Iterator<Item = &KeepLimits> {
        self.of_sources.values().chain([&self.of_others])
    }

    fn of(&self, source: &str) -> &KeepLimits {
        self.of_sources.get(source).unwrap_or(&self.of_others)
    }

    pub fn has_any(&self) -> bool {
        self.all().any(|limits| *limits != KeepLimits::default())
    }

    pub fn has_age(&self) -> bool {
        self.all().any(|limits| limits.age.is_some())
    }

    /// What stays free on the disk, by the strictest.
    fn floor(&self) -> Option<u64> {
        self.all().filter_map(|limits| limits.free_bytes).max()
    }

    /// Why even a new recording is removed, where the disk has so much free.
    pub fn why_none_stays(&self, free: Option<u64>) -> String {
        match self.floor().zip(free).filter(|(floor, free)| free < floor) {
            Some((floor, free)) => {
                let [floor, free] = [floor, free].map(|bytes| bytes as f64 / 1e9);
                format!("the disk has only {free:.1} GB free, and free-bytes wants {floor:.1} GB")
            }
            None => "it is larger than what is kept. Raise the limits on bytes, or make files shorter".into(),
        }
    }
}

/// The files to remove, those that were made first before the others. What is not known removes nothing: the time, and
/// `free`, what the disk has free.
pub fn too_many(entries: &Entries, folder: &FolderLimits, now: Option<UtcTime>, free: Option<u64>) -> Vec<String> {
    let oldest = in_order(entries);
    let mut of_source = BTreeMap::<&str, u64>::new();
    for recording in &oldest {
        let bytes = of_source.entry(&recording.source).or_default();
        *bytes = bytes.saturating_add(recording.bytes);
    }
    let mut total = of_source.values().fold(0_u64, |total, bytes| total.saturating_add(*bytes));
    // The strictest of those that share the folder.
    let total_limit = folder.all().filter_map(|limits| limits.total_bytes).min();
    let mut missing = folder.floor().zip(free).map_or(0, |(floor, free)| floor.saturating_sub(free));
    let mut removed = Vec::new();
    for recording in oldest {
        let limits = folder.of(&recording.source);
        let age = now.map_or(0, |now| now.0.saturating_sub(recording.end.0));
        let bytes = of_source.get_mut(recording.source.as_str()).expect("each source is counted");
        let is_old = limits.age.is_some_and(|limit| u128::from(age) > limit.as_nanos());
        let is_above = |limit: Option<u64>, bytes: u64| limit.is_some_and(|limit| bytes > limit);
        if is_old || is_above(limits.bytes, *bytes) || is_above(total_limit, total) || missing > 0 {
            *bytes = bytes.saturating_sub(recording.bytes);
            total = total.saturating_sub(recording.bytes);
            missing = missing.saturating_sub(recording.bytes);
            removed.push(recording.file.clone());
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::recording::{IndexLine, Kind, Recording, RecordingEntry};
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    /// One an hour of each source, from a to c, of 10, 20 and 30 bytes.
    fn recordings(hours: u64) -> Entries {
        let one = |source: &str, hour: u64, bytes| {
            let (begin, end) = (UtcTime(hour * HOUR), UtcTime((hour + 1) * HOUR));
            let file = format!("{source}{hour}");
            let (events, object) = (Vec::new(), None);
            let recording =
                Recording { file, source: source.into(), kind: Kind::Event, begin, end, bytes, events, object };
            RecordingEntry::new(&recording, hour + 1, IndexLine::Written { at: 0, length: 0 })
        };
        let sources = [("a", 10), ("b", 20), ("c", 30)];
        let all = (0..hours).flat_map(|hour| sources.map(|(source, bytes)| one(source, hour, bytes)));
        all.map(|entry| (entry.file.clone(), entry.into())).collect()
    }

    fn removed(hours: u64, limits: &[(&str, KeepLimits)], free: Option<u64>) -> Vec<String> {
        too_many(&recordings(hours), &folder(limits), Some(UtcTime(hours * HOUR)), free)
    }

    /// Limits of sources, and of others those of `*`.
    fn folder(limits: &[(&str, KeepLimits)]) -> FolderLimits {
        let mut of_sources: BTreeMap<_, _> =
            limits.iter().map(|(source, limits)| (source.to_string(), limits.clone())).collect();
        FolderLimits { of_others: of_sources.remove("*").unwrap_or_default(), of_sources }
    }

    #[test]
    fn without_limits_all_is_kept() {
        assert!(removed(100, &[("a", KeepLimits::default())], Some(0)).is_empty());
    }

    #[test]
    fn old_ones_go() {
        let limits = KeepLimits { age: Some(Duration::from_secs(2 * 3600)), ..KeepLimits::default() };
        // The end of the one of the second hour is two hours ago.
        assert_eq!(removed(4, &[("a", limits)], None), ["a0"]);
        // A clock that was set back makes nothing old.
        let limits = folder(&[("a", KeepLimits { age: Some(Duration::ZERO), ..KeepLimits::default() })]);
        assert!(too_many(&recordings(4), &limits, Some(UtcTime(0)), None).is_empty());
        // Nor does one that is not relied on.
        assert!(too_many(&recordings(4), &limits, None, None).is_empty());
    }

    #[test]
    fn sources_that_are_not_configured_any_more_have_the_common_limits() {
        let age = |hours: u64| KeepLimits { age: Some(Duration::from_secs(hours * 3600)), ..KeepLimits::default() };
        assert_eq!(removed(4, &[("a", age(3)), ("b", age(9)), ("*", age(2))], None), ["c0"]);
        let total = KeepLimits { total_bytes: Some(170), ..KeepLimits::default() };
        assert_eq!(removed(4, &[("*", total)], None), ["a0", "b0", "c0", "a1"]);
    }

    /// A recording of a clock that was wrong does not stay the newest.
    #[test]
    fn those_that_were_made_first_make_room() {
        let mut recordings = recordings(4);
        let future = Arc::make_mut(recordings.get_mut("b1").unwrap());
        (future.begin, future.end) = (UtcTime(1000 * HOUR), UtcTime(1001 * HOUR));
        let limits = KeepLimits { bytes: Some(45), ..KeepLimits::default() };
        assert_eq!(too_many(&recordings, &folder(&[("b", limits)]), Some(UtcTime(4 * HOUR)), None), ["b0", "b1"]);
    }

    #[test]
    fn the_oldest_of_a_source_make_room_for_its_newer_ones() {
        let limits = |bytes| KeepLimits { bytes: Some(bytes), ..KeepLimits::default() };
        assert_eq!(removed(4, &[("b", limits(45))], None), ["b0", "b1"]);
        assert_eq!(removed(4, &[("b", limits(80)), ("c", limits(0))], None), ["c0", "c1", "c2", "c3"]);
    }

    /// An index may say anything.
    #[test]
    fn sums_do_not_wrap() {
        let mut recordings = recordings(2);
        Arc::make_mut(recordings.get_mut("a1").unwrap()).bytes = u64::MAX;
        let limits = KeepLimits { total_bytes: Some(u64::MAX), bytes: Some(u64::MAX), ..KeepLimits::default() };
        let folder = folder(&[("*", limits)]);
        assert!(too_many(&recordings, &folder, Some(UtcTime(2 * HOUR)), None).is_empty());
    }

    #[test]
    fn all_sources_share_the_total_and_the_disk() {
        let total = KeepLimits { total_bytes: Some(170), ..KeepLimits::default() };
        let more = KeepLimits { total_bytes: Some(1000), ..KeepLimits::default() };
        assert_eq!(removed(4, &[("a", more), ("b", total)], None), ["a0", "b0", "c0", "a1"]);
        let floor = KeepLimits { free_bytes: Some(100), ..KeepLimits::default() };
        assert!(removed(4, &[("a", floor.clone())], Some(100)).is_empty());
        assert_eq!(removed(4, &[("a", floor.clone())], Some(75)), ["a0", "b0"]);
        assert!(removed(4, &[("a", floor)], None).is_empty(), "nothing is removed for what is not known");
    }

    /// Where others fill the disk, larger limits would not help.
    #[test]
    fn it_is_known_why_even_a_new_recording_goes() {
        let limits = KeepLimits { bytes: Some(1), free_bytes: Some(20_000_000_000), ..KeepLimits::default() };
        let limits = folder(&[("a", limits)]);
        let full = "the disk has only 1.5 GB free, and free-bytes wants 20.0 GB";
        assert_eq!(limits.why_none_stays(Some(1_500_000_000)), full);
        for free in [Some(20_000_000_000), None] {
            assert!(limits.why_none_stays(free).contains("Raise the limits on bytes"), "{free:?}");
        }
    }
}
