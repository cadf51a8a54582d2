// SPDX-License-Identifier: MPL-2.0
//! What waits to be sent, so many at most, in order.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::options::DropPolicy;

/// Items for which there is room at all times.
const USUAL: usize = 256;

/// Between the thread that brings items and the one that sends them. What is being sent counts as waiting.
pub struct PublishQueue<T> {
    state: Mutex<QueueState<T>>,
    /// Items have come, or the end.
    arrived: Condvar,
    /// Items have gone, or no thread has to wait for room any more.
    left: Condvar,
    capacity: usize,
    drop: DropPolicy,
}

struct QueueState<T> {
    items: VecDeque<T>,
    /// Items that the sending thread holds.
    taken: usize,
    /// Dropped because there was no room.
    dropped: u64,
    /// No one waits for room: the stream is being flushed, or the end has come.
    is_open: bool,
    /// A frame has come, or an item.
    has_begun: bool,
    is_ended: bool,
}

/// What the sending thread finds.
pub enum Next<T> {
    Items(Vec<T>),
    Nothing,
    End,
}

impl<T> PublishQueue<T> {
    pub fn new(capacity: usize, drop: DropPolicy) -> Self {
        let state = QueueState {
            items: VecDeque::new(),
            taken: 0,
            dropped: 0,
            is_open: false,
            has_begun: false,
            is_ended: false,
        };
        PublishQueue {
            state: Mutex::new(state),
            arrived: Condvar::new(),
            left: Condvar::new(),
            capacity: capacity.max(1),
            drop,
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap()
    }

    /// Returns whether this was the first item for which there was no room.
    pub fn push(&self, item: T) -> bool {
        let mut state = self.lock();
        let is_full = |state: &QueueState<T>| state.items.len() + state.taken >= self.capacity;
        if self.drop == DropPolicy::Block {
            while is_full(&state) && !state.is_open && !state.is_ended {
                state = self.left.wait(state).unwrap();
            }
        }
        let mut dropped = None;
        if is_full(&state) {
            state.dropped += 1;
            // What is being sent can not be taken back.
            if self.drop == DropPolicy::Oldest && !state.items.is_empty() {
                dropped = state.items.pop_front();
            } else {
                return state.dropped == 1;
            }
        }
        state.items.push_back(item);
        state.has_begun = true;
        let is_first = dropped.is_some() && state.dropped == 1;
        std::mem::drop(state);
        self.arrived.notify_one();
        is_first
    }

    /// Items may come from now on.
    pub fn begin(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.has_begun, true) {
            drop(state);
            self.arrived.notify_all();
        }
    }

    /// Waits for the beginning, or for the end.
    pub fn wait_until_begun(&self) {
        drop(self.arrived.wait_while(self.lock(), |state| !state.has_begun && !state.is_ended));
    }

    /// Waits for items at most so long, and takes so many, but no more than half of what there is room for: while they
    /// are sent, or cannot be, the newest find room. It returns at once after [`end`](Self::end).
    pub fn take(&self, limit: usize, wait: Duration) -> Next<T> {
        let mut state = self.lock();
        if state.items.is_empty() && !state.is_ended {
            state = self
                .arrived
                .wait_timeout_while(state, wait, |state| state.items.is_empty() && !state.is_ended)
                .unwrap()
                .0;
        }
        if !state.items.is_empty() {
            let count = limit.min(self.capacity.div_ceil(2)).clamp(1, state.items.len());
            state.taken = count;
            let items = state.items.drain(..count).collect();
            // Room that a long outage has taken is given back.
            if state.items.is_empty() && state.items.capacity() > USUAL {
                state.items.shrink_to(USUAL);
            }
            return Next::Items(items);
        }
        if state.is_ended { Next::End } else { Next::Nothing }
    }

    /// So many of the items taken are gone: sent, or given up.
    pub fn done(&self, count: usize) {
        let mut state = self.lock();
        state.taken = state.taken.saturating_sub(count);
        std::mem::drop(state);
        self.left.notify_all();
    }

    /// Waits so long, or until the end.
    pub fn pause(&self, wait: Duration) {
        let state = self.lock();
        drop(self.arrived.wait_timeout_while(state, wait, |state| !state.is_ended));
    }

    /// Waits until the queue is empty, but not longer than this; returns whether it is empty.
    pub fn wait_until_empty(&self, wait: Duration) -> bool {
        let is_busy = |state: &mut QueueState<T>| !state.is_open && (!state.items.is_empty() || state.taken > 0);
        let state = self.left.wait_timeout_while(self.lock(), wait, is_busy).unwrap().0;
        state.items.is_empty() && state.taken == 0
    }

    /// Whether no thread may wait here, as while a stream is flushed.
    pub fn set_open(&self, is_open: bool) {
        self.lock().is_open = is_open;
        self.left.notify_all();
    }

    /// No more items come; those that are there may still be taken.
    pub fn end(&self) {
        self.lock().is_ended = true;
        self.arrived.notify_all();
        self.left.notify_all();
    }

    pub fn is_ended(&self) -> bool {
        self.lock().is_ended
    }

    /// Gives up all that waits.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.dropped += state.items.len() as u64;
        let items = std::mem::take(&mut state.items);
        drop(state);
        drop(items);
        self.left.notify_all();
    }

    /// How many wait, and how many were dropped.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.lock();
        ((state.items.len() + state.taken) as u64, state.dropped)
    }
}
