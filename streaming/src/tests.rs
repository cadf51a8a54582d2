// SPDX-License-Identifier: MPL-2.0
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use gsttrt_core::memory::{Limits, MemoryKind};
use gsttrt_core::tensor::{DType, Dims};
use proptest::prelude::*;

use super::*;
use crate::test::{LIMIT, gpu, wait_until};

/// A tensor of so many bytes.
fn desc(bytes: usize) -> TensorDesc {
    TensorDesc::new("t", DType::U8, &[bytes as i64])
}

/// With room for two tensors of 1000 bytes, all of which is granted.
fn receiver() -> Receiver {
    let receiver = Receiver::new(Pool::default(), 2000);
    assert_eq!(receiver.grant().unwrap(), Some(2000));
    receiver
}

/// Different ones for each tensor.
fn content(sequence: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i * 7 + i / 256 + sequence * 31) as u8).collect()
}

fn send(receiver: &Receiver, sequence: u64, bytes: usize) {
    receiver.announce(sequence, desc(bytes)).unwrap();
    receiver.chunk(sequence, 0, &content(sequence, bytes)).unwrap();
}

/// The next tensor is this one, and as it was sent.
#[track_caller]
fn expect(receiver: &Receiver, sequence: u64) -> Received {
    let Poll::Ready(Some(tensor)) = receiver.try_take().unwrap() else { panic!("tensor {sequence} is not complete") };
    assert_eq!(tensor.sequence(), sequence);
    let bytes = tensor.bytes().unwrap();
    assert!(bytes == content(sequence, bytes.len()), "tensor {sequence} has other bytes");
    tensor
}

#[track_caller]
fn expect_error<T>(result: Result<T>, parts: &[&str]) {
    let error = result.err().expect("it is an error");
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    for part in parts {
        assert!(error.message().contains(part), "“{part}” is missing in: {error}");
    }
}

/// All credits, which come back once nothing is there any more.
#[track_caller]
fn expect_idle(receiver: &Receiver, credits_of_the_sender: usize) {
    let granted = match receiver.try_grant().unwrap() {
        Poll::Ready(granted) => granted.unwrap(),
        Poll::Pending => 0,
    };
    assert_eq!(granted + credits_of_the_sender, receiver.room);
    assert!(receiver.progress().is_empty());
    assert_eq!(receiver.pool.stats().in_use, 0);
}

// ------------------------------------------------------------------------------------------- what arrives

#[test]
fn chunks_make_a_tensor_in_any_order() {
    let (receiver, all) = (receiver(), content(5, 1000));
    receiver.announce(5, TensorDesc::new("images", DType::F32, &[10, 25])).unwrap();
    let progress = |received| Progress { sequence: 5, received, bytes: 1000 };
    assert_eq!(receiver.progress(), [progress(0)]);
    assert_eq!(receiver.chunk(5, 999, &all[999..]).unwrap(), progress(1));
    assert_eq!(receiver.chunk(5, 0, &all[..400]).unwrap(), progress(401));
    assert!(receiver.try_take().unwrap().is_pending());
    assert_eq!(receiver.progress(), [progress(401)]);
    assert_eq!(receiver.chunk(5, 400, &all[400..999]).unwrap(), progress(1000));
    assert!(receiver.progress().is_empty());
    receiver.finish(5).unwrap();
    let tensor = expect(&receiver, 5);
    assert_eq!(tensor.desc().to_string(), "images f32 10x25");
    assert_eq!(tensor.as_slice::<f32>().unwrap().len(), 250);
    assert_eq!(format!("{tensor:?}"), "Received(5: Tensor(images f32 10x25 on the host))");
    drop(tensor);
    expect_idle(&receiver, 1000);
}

#[test]
fn the_next_tensor_arrives_while_one_is_used() {
    let receiver = receiver();
    send(&receiver, 0, 1000);
    let used = expect(&receiver, 0);
    send(&receiver, 1, 1000);
    assert!(used.bytes().unwrap() == content(0, 1000), "nothing was written over");
    let first = used.bytes().unwrap().as_ptr();
    drop(used);
    assert_eq!(receiver.grant().unwrap(), Some(1000));
    send(&receiver, 2, 1000);
    drop(expect(&receiver, 1));
    assert_eq!(expect(&receiver, 2).bytes().unwrap().as_ptr(), first, "two buffers are all there are");
}

#[test]
fn tensors_are_taken_in_the_order_of_announcement() {
    let receiver = receiver();
    receiver.announce(3, desc(600)).unwrap();
    send(&receiver, 7, 600);
    assert!(receiver.try_take().unwrap().is_pending(), "the first one is arriving");
    receiver.chunk(3, 0, &content(3, 600)).unwrap();
    drop((expect(&receiver, 3), expect(&receiver, 7)));
}

#[test]
fn who_waits_gets_the_next_one_when_the_first_is_dropped() {
    let receiver = receiver();
    receiver.announce(0, desc(600)).unwrap();
    send(&receiver, 1, 600);
    thread::scope(|scope| {
        let user = scope.spawn(|| receiver.take().unwrap().unwrap().sequence());
        receiver.takers.wait_for(1);
        receiver.finish(0).unwrap_err();
        assert_eq!(user.join().unwrap(), 1);
    });
}

#[test]
fn a_tensor_without_elements_is_complete_at_once() {
    let receiver = receiver();
    receiver.announce(0, TensorDesc::new("rows", DType::F32, &[0, 6])).unwrap();
    expect_error(receiver.chunk(0, 0, &[]), &["chunk of tensor 0", "it is complete"]);
    assert_eq!(expect(&receiver, 0).as_slice::<f32>().unwrap(), [0.0; 0]);
    expect_idle(&receiver, 2000 - LEAST_CREDITS);
}

#[test]
fn a_tensor_may_outlive_its_receiver() {
    let receiver = receiver();
    send(&receiver, 0, 500);
    let tensor = expect(&receiver, 0);
    drop(receiver);
    assert!(tensor.bytes().unwrap() == content(0, 500));
}

// ------------------------------------------------------------------------------------------- what is wrong

#[test]
fn announcements_that_cannot_be_met_are_errors() {
    let receiver = receiver();
    let announce = |sequence, desc| receiver.announce(sequence, desc);
    let open = TensorDesc::new("images", DType::F32, &[1, 3, Dims::DYNAMIC, 8]);
    expect_error(announce(0, open), &["tensor 0, images f32 1x3x?x8", "size of a tensor", "not known", "Announce it"]);
    let huge = TensorDesc::new("huge", DType::I64, &[i64::MAX, 2]);
    expect_error(announce(0, huge), &["is not known"]);
    expect_error(announce(0, desc(2001)), &["tensor 0, t u8 2001", "it takes 2001 bytes, and there is room for 2000"]);
    announce(4, desc(1200)).unwrap();
    expect_error(announce(5, desc(801)), &["it takes 801 credits, and the sender has 800", "Wait for grants"]);
    for late in [4, 0] {
        expect_error(announce(late, desc(800)), &["the last one was 4", "Count upwards"]);
        assert_eq!(receiver.grant().unwrap(), Some(800), "the credits are not lost");
    }
    receiver.close().unwrap_err();
    expect_error(announce(6, desc(800)), &["the sender has closed"]);
    assert!(receiver.take().unwrap().is_none());
}

#[test]
fn a_pool_without_memory_costs_no_credits() {
    let receiver = Receiver::new(Pool::host(Limits { in_use: 1024, idle: 1024 }), 2000);
    receiver.grant().unwrap();
    receiver.announce(0, desc(1000)).unwrap();
    let error = receiver.announce(1, desc(1000)).unwrap_err();
    assert!(error.message().contains("host memory is exhausted"), "{error}");
    assert_eq!(receiver.grant().unwrap(), Some(1000));
    receiver.chunk(0, 0, &content(0, 1000)).unwrap();
    drop(expect(&receiver, 0));
    receiver.announce(1, desc(1000)).unwrap();
}

#[test]
fn a_wrong_chunk_drops_its_tensor_and_no_other() {
    for (at, count, said) in [
        (500, 101, "a chunk of 101 bytes from 500 on ends beyond its 600 bytes"),
        (usize::MAX, 1, "ends beyond"),
        (100, 100, "of a chunk from 100 to 200, the bytes from 100 to 200 are there already"),
        (0, 101, "the bytes from 100 to 101"),
        (199, 10, "the bytes from 199 to 200"),
        (300, 0, "a chunk at 300 has no bytes"),
    ] {
        let receiver = receiver();
        receiver.announce(0, desc(600)).unwrap();
        receiver.announce(1, desc(600)).unwrap();
        receiver.chunk(0, 100, &[1; 100]).unwrap();
        receiver.chunk(1, 0, &content(1, 600)[..300]).unwrap();
        expect_error(receiver.chunk(0, at, &[1; 200][..count]), &["Tensor 0, t u8 600, is dropped", said]);
        expect_error(receiver.chunk(0, 0, &[1]), &["chunk of tensor 0", "was dropped", "under a new number"]);
        receiver.finish(0).unwrap(); // that something is wrong was said
        assert_eq!(receiver.grant().unwrap(), Some(600));
        receiver.chunk(1, 300, &content(1, 600)[300..]).unwrap();
        send(&receiver, 2, 600);
        drop((expect(&receiver, 1), expect(&receiver, 2)));
        expect_idle(&receiver, 800);
    }
}

#[test]
fn a_chunk_that_two_threads_bring_is_an_error_for_one_at_least() {
    for _ in 0..200 {
        let receiver = receiver();
        receiver.announce(0, desc(1000)).unwrap();
        let all = content(0, 1000);
        let came = thread::scope(|scope| {
            let threads = [0, 1].map(|_| scope.spawn(|| receiver.chunk(0, 0, &all).is_ok()));
            threads.map(|thread| thread.join().unwrap())
        });
        // Both fail where one came while the other was copied: its tensor is dropped then.
        if came.contains(&true) {
            drop(expect(&receiver, 0))
        } else {
            assert!(receiver.try_take().unwrap().is_pending())
        }
        assert_ne!(came, [true, true]);
        expect_idle(&receiver, 1000);
    }
}

#[test]
fn chunks_of_tensors_that_are_not_arriving_are_errors() {
    let receiver = receiver();
    let chunk = |sequence| receiver.chunk(sequence, 0, &[1]);
    expect_error(chunk(0), &["Tensor 0 is not announced", "nothing was so far", "Announce it first"]);
    send(&receiver, 5, 300);
    expect_error(chunk(6), &["Tensor 6 is not announced", "the last one was 5"]);
    expect_error(receiver.finish(6), &["Tensor 6 is not announced"]);
    expect_error(chunk(4), &["left out"]);
    expect_error(chunk(5), &["chunk of tensor 5", "it is complete"]);
    let tensor = expect(&receiver, 5);
    expect_error(chunk(5), &["it is complete"]);
    assert!(tensor.bytes().unwrap() == content(5, 300), "nothing was written");
    drop(tensor);
    expect_error(chunk(5), &["it is complete"]);
    expect_idle(&receiver, 1700);
}

#[test]
fn a_short_tensor_is_an_error_when_the_sender_ends() {
    let receiver = receiver();
    receiver.announce(0, desc(500)).unwrap();
    receiver.chunk(0, 100, &[1; 100]).unwrap();
    expect_error(receiver.finish(0), &["Tensor 0, t u8 500, is dropped", "100 of its 500 bytes have arrived"]);
    send(&receiver, 1, 500);
    receiver.announce(2, desc(500)).unwrap();
    assert_eq!(receiver.grant().unwrap(), Some(500));
    expect_error(receiver.close(), &["Tensor 2, t u8 500, is dropped", "0 of its 500 bytes"]);
    receiver.close().unwrap();
    assert_eq!(receiver.grant().unwrap(), None);
    drop(expect(&receiver, 1));
    assert!(receiver.take().unwrap().is_none());
    assert!(matches!(receiver.try_take().unwrap(), Poll::Ready(None)));
    assert_eq!(receiver.pool.stats().in_use, 0);
}

// ------------------------------------------------------------------------------------------- waiting

#[test]
fn credits_add_up() {
    let receiver = receiver();
    send(&receiver, 0, 500);
    drop(expect(&receiver, 0));
    assert!(matches!(receiver.try_grant().unwrap(), Poll::Ready(Some(500))));
    assert!(receiver.try_grant().unwrap().is_pending());
    expect_error(receiver.announce(1, desc(2001)), &["room for 2000"]);
    send(&receiver, 1, 2000);
    drop(expect(&receiver, 1));
    expect_idle(&receiver, 0);
}

#[test]
fn tiny_tensors_take_the_least_credits() {
    let receiver = receiver();
    let announced = (0..).take_while(|&sequence| receiver.announce(sequence, desc(1)).is_ok()).count();
    assert_eq!(announced, 2000 / LEAST_CREDITS);
}

#[test]
fn a_fast_sender_is_held_back() {
    const BYTES: usize = 1 << 14;
    const ROOM: usize = 2 * BYTES + 100;
    enum Sent {
        Announced(u64),
        Chunk(u64, usize, Vec<u8>),
    }
    let (receiver, unread) = (Receiver::new(Pool::default(), ROOM), AtomicUsize::new(0));
    let (channel, network) = mpsc::channel(); // nothing but the credits bounds it
    let maximum = thread::scope(|scope| {
        let (receiver, unread) = (&receiver, &unread);
        let sender = scope.spawn(move || {
            let (mut credits, mut maximum) = (0, 0);
            for sequence in 0..30 {
                while credits < BYTES {
                    credits += receiver.grant().unwrap().unwrap();
                }
                credits -= BYTES;
                channel.send(Sent::Announced(sequence)).unwrap();
                for (i, chunk) in content(sequence, BYTES).chunks(1000).enumerate() {
                    maximum = unread.fetch_add(chunk.len(), Ordering::SeqCst).max(maximum);
                    channel.send(Sent::Chunk(sequence, i * 1000, chunk.to_vec())).unwrap();
                }
            }
            maximum
        });
        scope.spawn(move || {
            for sent in network {
                match sent {
                    Sent::Announced(sequence) => receiver.announce(sequence, desc(BYTES)).unwrap(),
                    Sent::Chunk(sequence, at, bytes) => {
                        unread.fetch_sub(bytes.len(), Ordering::SeqCst);
                        receiver.chunk(sequence, at, &bytes).unwrap();
                    }
                }
            }
            receiver.close().unwrap();
        });
        for sequence in 0..30 {
            let tensor = receiver.take().unwrap().unwrap();
            assert!(tensor.sequence() == sequence && tensor.bytes().unwrap() == content(sequence, BYTES));
            // Slower than the sender, which has room for one more.
            if sequence == 0 {
                wait_until("the second tensor", LIMIT, || receiver.pool.stats().peak_bytes >= 2 * BYTES);
            }
        }
        assert!(receiver.take().unwrap().is_none());
        sender.join().unwrap()
    });
    assert!((1..ROOM).contains(&maximum), "{maximum} bytes were on their way");
    assert_eq!((receiver.pool.stats().peak_bytes, receiver.pool.stats().misses), (2 * BYTES, 2));
}

#[test]
fn cancelling_ends_the_waits_of_both_sides() {
    let receiver = receiver();
    send(&receiver, 0, 500);
    let taken = expect(&receiver, 0);
    receiver.announce(1, desc(500)).unwrap();
    thread::scope(|scope| {
        let users = [0, 1].map(|_| scope.spawn(|| receiver.take().map(drop).unwrap_err()));
        let senders = [0, 1].map(|_| scope.spawn(|| receiver.grant().map(drop).unwrap_err()));
        receiver.takers.wait_for(2);
        receiver.credits.askers.wait_for(2);
        receiver.cancel("the line is dead");
        for waiting in users.into_iter().chain(senders) {
            let error = waiting.join().unwrap();
            assert_eq!(error.kind(), ErrorKind::Run);
            assert_eq!(error.message(), "Receiving tensors was cancelled: the line is dead.");
        }
    });
    receiver.cancel("again");
    assert_eq!(format!("{receiver:?}"), "Receiver(room for 2000 bytes, 0 arriving, 0 complete)");
    let errors = [
        receiver.announce(2, desc(500)).err(),
        receiver.chunk(1, 0, &[1]).err(),
        receiver.finish(1).err(),
        receiver.close().err(),
        receiver.try_take().err(),
        receiver.try_grant().err(),
    ];
    for error in errors {
        assert!(error.unwrap().message().contains("the line is dead"), "the first reason is kept");
    }
    assert_eq!(receiver.pool.stats().in_use, 1);
    assert!(taken.bytes().unwrap() == content(0, 500), "what was taken stays");
    drop(taken);
    assert_eq!(receiver.pool.stats().in_use, 0);
}

#[test]
fn closing_ends_the_waits_of_both_sides() {
    let receiver = Receiver::new(Pool::default(), 500);
    receiver.grant().unwrap();
    thread::scope(|scope| {
        let user = scope.spawn(|| receiver.take().unwrap().is_none());
        let sender = scope.spawn(|| receiver.grant().unwrap().is_none());
        receiver.takers.wait_for(1);
        receiver.credits.askers.wait_for(1);
        receiver.close().unwrap();
        assert!(user.join().unwrap() && sender.join().unwrap());
    });
}

#[test]
fn cancelling_amid_chunks_ends_all_waits() {
    for round in 0..200 {
        let receiver = Receiver::new(Pool::default(), 4096);
        let sender = || -> Result<()> {
            let mut credits = 0;
            for sequence in 0.. {
                while credits < 2048 {
                    credits += receiver.grant()?.expect("the receiver is not closed");
                }
                credits -= 2048;
                receiver.announce(sequence, desc(2048))?;
                thread::scope(|scope| {
                    let half = |at| receiver.chunk(sequence, at, &[1; 1024]);
                    let other = scope.spawn(move || half(0));
                    half(1024).and(other.join().unwrap())
                })?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let sender = scope.spawn(sender);
            let (took, taken) = std::sync::mpsc::channel();
            let receiver = &receiver;
            let user = scope.spawn(move || while receiver.take().map(drop).is_ok_and(|()| took.send(()).is_ok()) {});
            // While the next ones are on their way.
            taken.iter().take(round % 10).for_each(drop);
            receiver.cancel("enough");
            assert!(sender.join().unwrap().unwrap_err().message().contains("enough"));
            user.join().unwrap();
        });
        assert_eq!(receiver.pool.stats().in_use, 0);
    }
}

// ------------------------------------------------------------------------------------------- where it arrives

#[test]
fn tensors_arrive_in_memory_of_every_kind() {
    let Some(context) = gpu() else { return };
    for kind in MemoryKind::ALL {
        let pool = Pool::new(kind, &context, Limits::NONE);
        if let Err(error) = pool.take(1) {
            assert_eq!(kind, MemoryKind::Unified, "{error}");
            println!("SKIP: {error}");
            continue;
        }
        let receiver = Receiver::new(pool, 20_000);
        receiver.grant().unwrap();
        for sequence in 0..6 {
            let all = content(sequence, 10_000);
            receiver.announce(sequence, desc(all.len())).unwrap();
            thread::scope(|scope| {
                for chunks in [[3, 0], [1, 2]] {
                    let (receiver, all) = (&receiver, &all);
                    scope.spawn(move || {
                        for i in chunks {
                            receiver.chunk(sequence, i * 2500, &all[i * 2500..][..2500]).unwrap();
                        }
                    });
                }
            });
            expect_error(receiver.chunk(sequence, 0, &all[..1]), &["it is complete"]);
            let tensor = receiver.take().unwrap().unwrap();
            let found = match tensor.device() {
                Some(block) => block.read().unwrap(),
                None => tensor.bytes().unwrap().to_vec(),
            };
            assert!(found == all, "{kind}");
            assert_eq!(tensor.device().is_some(), kind == MemoryKind::Device);
            drop(tensor);
            assert_eq!(receiver.grant().unwrap(), Some(10_000));
        }
        assert_eq!(receiver.pool.stats().misses, 2, "{kind}: one to find out whether there is any, and one");
    }
}

#[test]
fn a_wrong_chunk_frees_memory_of_the_gpu() {
    let Some(context) = gpu() else { return };
    let receiver = Receiver::new(Pool::new(MemoryKind::Device, &context, Limits::NONE), 1000);
    receiver.grant().unwrap();
    receiver.announce(0, desc(1000)).unwrap();
    receiver.chunk(0, 0, &[1; 600]).unwrap();
    expect_error(receiver.chunk(0, 599, &[1; 400]), &["the bytes from 599 to 600"]);
    expect_idle(&receiver, 0);
    send(&receiver, 1, 1000);
    assert!(receiver.take().unwrap().unwrap().device().unwrap().read().unwrap() == content(1, 1000));
}

// ------------------------------------------------------------------------------------------- all there is

/// Where chunks begin and end, in any order.
fn partition() -> impl Strategy<Value = Vec<(usize, usize)>> {
    (1usize..3000, prop::collection::vec(0usize..3000, 0..40)).prop_flat_map(|(bytes, cuts)| {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % bytes).chain([0, bytes]).collect();
        cuts.sort();
        cuts.dedup();
        Just(cuts.windows(2).map(|ends| (ends[0], ends[1])).collect::<Vec<_>>()).prop_shuffle()
    })
}

fn size(chunks: &[(usize, usize)]) -> usize {
    chunks.iter().map(|&(from, to)| to - from).sum()
}

proptest! {
    #[test]
    fn any_chunks_by_several_threads_are_the_tensor(chunks in partition(), threads in 1usize..4) {
        let all = content(9, size(&chunks));
        let receiver = Receiver::new(Pool::default(), 4000);
        receiver.grant().unwrap();
        receiver.announce(9, desc(all.len())).unwrap();
        thread::scope(|scope| {
            for thread in 0..threads {
                let (receiver, all, chunks) = (&receiver, &all, &chunks);
                scope.spawn(move || {
                    for &(from, to) in chunks.iter().skip(thread).step_by(threads) {
                        receiver.chunk(9, from, &all[from..to]).unwrap();
                    }
                });
            }
        });
        let tensor = receiver.take().unwrap().unwrap();
        prop_assert!(tensor.bytes().unwrap() == all);
    }

    #[test]
    fn the_first_wrong_chunk_is_an_error_and_breaks_nothing_else(
        good in partition(),
        bad in partition(),
        after in any::<prop::sample::Index>(),
        sort in 0..4,
        which in any::<prop::sample::Index>(),
    ) {
        let receiver = Receiver::new(Pool::default(), 6000);
        let mut credits = receiver.grant().unwrap().unwrap();
        for (sequence, chunks) in [(1, &good), (2, &bad)] {
            receiver.announce(sequence, desc(size(chunks))).unwrap();
            credits -= size(chunks).max(LEAST_CREDITS);
        }
        let (all, others) = (content(1, size(&good)), content(2, size(&bad)));
        let (early, late) = good.split_at(good.len() / 2);
        let send = |sequence, content: &[u8], chunks: &[(usize, usize)]| {
            chunks.iter().try_for_each(|&(from, to)| receiver.chunk(sequence, from, &content[from..to]).map(drop))
        };
        send(1, &all, early).unwrap();

        // One chunk goes wrong when some are there.
        let sent = &bad[..1 + after.index(bad.len())];
        send(2, &others, sent).unwrap();
        let (from, to) = sent[which.index(sent.len())];
        let wrong = match sort {
            0 => receiver.chunk(2, from, &others[from..to]),                           // again
            1 => receiver.chunk(2, from.saturating_sub(1), &[0; 2]), // over its edge
            2 => receiver.chunk(2, others.len(), &[0]),                                // beyond
            _ => receiver.chunk(3, from, &others[from..to]),                           // not announced
        };
        prop_assert_eq!(wrong.unwrap_err().kind(), ErrorKind::WrongType);
        let is_complete = sent.len() == bad.len();
        prop_assert_eq!(send(2, &others, &bad[sent.len()..]).is_ok(), is_complete || sort == 3);

        // The others are as if nothing had been.
        send(1, &all, late).unwrap();
        prop_assert!(receiver.take().unwrap().unwrap().bytes().unwrap() == all);
        if is_complete || sort == 3 {
            prop_assert!(receiver.take().unwrap().unwrap().bytes().unwrap() == others);
        }
        prop_assert!(receiver.try_take().unwrap().is_pending());
        expect_idle(&receiver, credits);
    }
}
