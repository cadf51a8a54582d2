// SPDX-License-Identifier: MPL-2.0
//! trtpublish to Kafka, which keeps the order of a partition alone: the key of a message says which one.

use super::{Stream, frames, numbers};
use crate::kafka_cluster::{FoundMessage, MockCluster};

#[test]
fn messages_of_a_source_are_in_one_partition() {
    let Some(cluster) = MockCluster::with_partitions(4) else { return };
    let location = format!("kafka://127.0.0.1:{}/boxes", cluster.port);
    // By the hash that Java's clients have, each is in a partition of its own; without a name there is no key.
    let names = ["gate", "street", "gärten 7", ""];
    let mut streams = names.map(|name| Stream::new(&location, &format!("source-id=\"{name}\"")));
    for _ in 0..10 {
        streams.iter_mut().for_each(|stream| stream.push(5));
    }
    streams.iter().for_each(Stream::end);
    let found = cluster.found(200);
    for name in &names[..3] {
        let own: Vec<&FoundMessage> = found.iter().filter(|found| found.key == *name).collect();
        assert!(own.iter().all(|found| found.partition == own[0].partition), "{own:?}");
        assert!(own.iter().all(|found| found.text.contains(&format!("\"{name}\""))), "{own:?}");
        assert_eq!(frames(&own.iter().map(|found| found.text.clone()).collect::<Vec<_>>()), numbers(0..50), "{name}");
    }
    assert_eq!(found.iter().filter(|found| found.key.is_empty()).count(), 50);
}
