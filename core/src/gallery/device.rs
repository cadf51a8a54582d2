// SPDX-License-Identifier: MPL-2.0
//! Galleries on a GPU: `kernels/match.cu`. The reference implementation is [`Gallery::find`].
//!
//! The vectors of a gallery are copied there once for all who compare in a context, in the order in which the kernel reads them. Then
//! those of a frame are copied in one piece, a first kernel compares all with all in one pass over the gallery's memory, and a second
//! one finds the best names.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;

use super::{Gallery, Likeness};
use crate::counters;
use crate::cuda::driver::{Context, Function, Launch, Stream, StreamRole, WaitHistory};
use crate::cuda::kernels::MATCH;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{DeviceBlock, DevicePool, Mapped};
use crate::vector::{LANES, product};

/// Numbers of a gallery's vectors from which on a GPU is faster for a single object: it takes some 30 µs for any, and a core as long
/// for this many.
const WORTHWHILE: usize = 1 << 20;

/// As in the kernels.
const STEP: usize = LANES;
const PARTS: usize = 4;
const SLOTS: usize = 32 / PARTS;
const ROWS: usize = 4;
const TILE: usize = ROWS * SLOTS;
const TILE_STEP: usize = TILE * STEP;
const AHEAD: usize = 2;
const PRODUCT_THREADS: u32 = 384;
const NAME_THREADS: usize = 256;
const SLICE: usize = NAME_THREADS * 16;
const MOST: usize = 100;
/// Vectors of a gallery: a thread takes a slice.
const MAX_ROWS: usize = NAME_THREADS * SLICE;
/// Behind the last name of a vector.
const NONE: u32 = u32::MAX;

/// Vectors that are compared together: their products with 100,000 known ones take 24 MB.
const AT_ONCE: usize = 60;
/// Numbers of the gallery that are put into their order and copied at a time.
const STAGED: usize = 1 << 20;

/// `MatchParams` of `match.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct MatchParams {
    known: u64,
    owners: u64,
    vectors: u64,
    products: u64,
    keys: u64,
    done: u64,
    best: u64,
    rows: u32,
    tiles: u32,
    steps: u32,
    most: u32,
    margin: f32,
    unused: u32,
}

const _: () = assert!(size_of::<MatchParams>() == 80);

/// A [`Likeness`] as the kernel writes it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NamedLikeness {
    name: u32,
    likeness: f32,
}

/// Copies of a gallery, one for each context in which somebody has one.
#[derive(Debug, Default)]
pub(super) struct DeviceCopies {
    known: Mutex<Vec<Weak<DeviceGallery>>>,
    /// Locked while one is made, so that others who need the same wait for it instead of making another.
    making: Mutex<()>,
}

impl DeviceCopies {
    fn of(&self, context: &Context) -> Option<Arc<DeviceGallery>> {
        // Upgraded under the lock, dropped after it: that may free memory of a GPU.
        let all: Vec<_> = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().filter_map(Weak::upgrade).collect()
        };
        all.into_iter().find(|copy| copy.context() == context)
    }

    fn of_or_make(
        &self,
        context: &Context,
        make: impl FnOnce() -> Result<DeviceGallery>,
    ) -> Result<Arc<DeviceGallery>> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copy) = self.of(context) {
            return Ok(copy);
        }
        let made = Arc::new(make()?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|copy| copy.strong_count() > 0);
        known.push(Arc::downgrade(&made));
        Ok(made)
    }
}

/// The vectors of a gallery in the memory of a GPU, and the kernels that read them.
pub struct DeviceGallery {
    known: DeviceBlock,
    owners: DeviceBlock,
    rows: usize,
    /// Of a vector, with zeros at its end.
    steps: usize,
    names: usize,
    multiprocessors: usize,
    /// For up to so many vectors in one pass, the fewest first.
    products: [(usize, Function); 3],
    best_names: Function,
}

impl Gallery {
    /// Whether it is so large that a GPU finds names in it sooner than a core does.
    pub fn is_worth_a_gpu(&self) -> bool {
        self.len().saturating_mul(self.dims()) >= WORTHWHILE
    }

    /// Copies the vectors to a GPU, for a [`DeviceMatcher`], unless somebody has them in that context; `None` where there are none. They
    /// stay there as long as somebody has what this returns. Takes a tenth of a second for a large gallery, and longer where the kernels
    /// were never loaded.
    ///
    /// # Errors
    /// `Run`, where the GPU has no memory left or cannot load the kernels; `Settings`, where there are too many vectors.
    pub fn upload(&self, context: &Context) -> Result<Option<Arc<DeviceGallery>>> {
        if self.is_empty() {
            return Ok(None);
        }
        self.on_gpus.of_or_make(context, || DeviceGallery::new(self, context)).map(Some)
    }

    /// What [`Gallery::upload`] has copied into that context, if somebody has it still. Never waits for a copy.
    pub fn on_gpu(&self, context: &Context) -> Option<Arc<DeviceGallery>> {
        self.on_gpus.of(context)
    }

    /// Writes the vectors of a tile in the order in which the kernel reads them. `groups` are those of 16 numbers of a vector; behind
    /// the last vector there are zeros.
    fn fill_tile(&self, tile: usize, groups: usize, numbers: &mut [f32]) {
        let first = tile * TILE;
        let vectors = self.vectors.chunks_exact(groups).skip(first).take(TILE);
        if self.len() < first + TILE {
            numbers.fill(0.0);
        }
        for (in_tile, vector) in vectors.enumerate() {
            for (step, lanes) in vector.iter().enumerate() {
                for (part, four) in lanes.chunks_exact(STEP / PARTS).enumerate() {
                    numbers[place(in_tile, step, part)..][..four.len()].copy_from_slice(four);
                }
            }
        }
    }
}

/// Where a part of a step of a tile's vector lies, in numbers from the beginning of the tile.
fn place(in_tile: usize, step: usize, part: usize) -> usize {
    let slot = in_tile % SLOTS;
    let lane = slot % 2 + part * 2 + slot / 2 * (2 * PARTS);
    ((step * ROWS + in_tile / SLOTS) * 32 + lane) * (STEP / PARTS)
}

impl DeviceGallery {
    fn new(gallery: &Gallery, context: &Context) -> Result<Self> {
        let rows = gallery.len();
        if rows > MAX_ROWS {
            let what = format!("The gallery has {rows} vectors, and on a GPU {MAX_ROWS} are the most");
            return Err(Error::new(ErrorKind::Settings, what).remedy("Remove some names"));
        }
        let module = context.module(MATCH)?;
        let (groups, tiles) = (gallery.dims().div_ceil(STEP), rows.div_ceil(TILE));
        let steps = groups.next_multiple_of(AHEAD);
        let of_tile = steps * TILE_STEP;
        let (pool, stream) = (DevicePool::new(context), Stream::new(context)?);
        let products = [(4, "match_products_4"), (8, "match_products_8"), (20, "match_products_20")];
        let [few, more, many] =
            products.map(|(vectors, name)| module.function(name).map(|function| (vectors, function)));
        let made = DeviceGallery {
            known: pool.take(tiles * of_tile * size_of::<f32>())?,
            owners: pool.take(rows * size_of::<u32>())?,
            rows,
            steps,
            names: gallery.names.len(),
            multiprocessors: usize::try_from(context.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?).unwrap_or(0),
            products: [few?, more?, many?],
            best_names: module.function("match_names")?,
        };
        let at_once = (STAGED / of_tile).max(1);
        let mut staged = vec![0f32; at_once.min(tiles) * of_tile];
        let queued = stream.queuing();
        for first in (0..tiles).step_by(at_once) {
            let staged = &mut staged[..at_once.min(tiles - first) * of_tile];
            for (at, tile) in staged.chunks_exact_mut(of_tile).enumerate() {
                gallery.fill_tile(first + at, groups, tile);
            }
            let to = made.known.address() + (first * of_tile * size_of::<f32>()) as u64;
            // SAFETY: the block has all tiles, and nothing else uses it. What is staged is pageable, and read during the call.
            unsafe { stream.upload(cast_slice(staged), to) }?;
        }
        // SAFETY: as above.
        unsafe { stream.upload(cast_slice(&gallery.owners), made.owners.address()) }?;
        queued.record()?.wait()?;
        Ok(made)
    }

    pub fn context(&self) -> &Context {
        self.known.context()
    }

    fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE)
    }
}

impl fmt::Debug for DeviceGallery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceGallery({} vectors in {:?})", self.rows, self.known)
    }
}

/// Compares vectors with galleries on a GPU. Owns the memory for it, which grows with the number of vectors.
pub struct DeviceMatcher {
    stream: Stream,
    buffers: Option<MatchBuffers>,
    waits: WaitHistory,
    pool: DevicePool,
}

/// Bytes of each of the memories below, in their order.
type MatchSizes = [usize; 5];

struct MatchBuffers {
    bytes: MatchSizes,
    /// What is copied to `vectors`.
    staged: Mapped,
    best: Mapped,
    vectors: DeviceBlock,
    products: DeviceBlock,
    keys: DeviceBlock,
    done: DeviceBlock,
}

impl MatchBuffers {
    fn new(pool: &DevicePool, stream: &Stream, bytes: MatchSizes) -> Result<Self> {
        let [vectors, products, keys, done, best] = bytes;
        let buffers = MatchBuffers {
            bytes,
            staged: Mapped::new(pool.context(), vectors)?,
            best: Mapped::new(pool.context(), best)?,
            vectors: pool.take(vectors)?,
            products: pool.take(products)?,
            keys: pool.take(keys)?,
            done: pool.take(done)?,
        };
        let queued = stream.queuing();
        // SAFETY: the block has so many bytes, and nothing else uses it until this is done.
        unsafe { stream.clear(buffers.done.address(), done) }?;
        queued.record()?.wait()?;
        Ok(buffers)
    }
}

/// Twice the largest difference between a rough product of vectors of so many steps and the exact one: each of their roundings is off by
/// half of an epsilon at most, and vectors of the length 1 have no larger sum of products. The rough product has four roundings a step and
/// those of the sums of the lanes, the exact one another one a step; the tenth is for lengths that are not quite 1.
fn margin(steps: usize) -> f32 {
    let roundings = 5 * steps + 16;
    1.1 * roundings as f32 * f32::EPSILON
}

/// What the margin holds for; also that all numbers are finite.
fn has_length_1(vector: &[f32]) -> bool {
    (0.98..1.02).contains(&product(vector, vector))
}

impl DeviceMatcher {
    /// # Errors
    /// `Run`, where there can be no stream.
    pub fn new(context: &Context) -> Result<Self> {
        Ok(DeviceMatcher {
            stream: Stream::of(context, StreamRole::Match)?,
            buffers: None,
            waits: WaitHistory::default(),
            pool: DevicePool::new(context),
        })
    }

    pub fn context(&self) -> &Context {
        self.pool.context()
    }

    /// What all work is queued on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// What [`Gallery::find`] finds, bit by bit: on the GPU, where the gallery is in this context and no more than 100 names are asked
    /// for, else on the host. Waits for it.
    ///
    /// # Errors
    /// `Run`, where CUDA fails or the GPU has no memory left; `DeviceLost`, where it cannot be used any more.
    pub fn find(&mut self, gallery: &Gallery, vectors: &[&[f32]], most: usize) -> Result<Vec<Vec<Likeness>>> {
        let on_gpu = gallery.on_gpu(self.context()).filter(|_| (1..=MOST).contains(&most));
        let Some(on_gpu) = on_gpu else { return Ok(gallery.find(vectors, most)) };
        let mut found = vec![Vec::new(); vectors.len()];
        let fitting = (0..vectors.len()).filter(|&at| vectors[at].len() == gallery.dims());
        let (usual, odd): (Vec<usize>, Vec<usize>) = fitting.partition(|&at| has_length_1(vectors[at]));
        for part in usual.chunks(AT_ONCE) {
            let of_part: Vec<&[f32]> = part.iter().map(|&at| vectors[at]).collect();
            let names = self.compare(&on_gpu, &of_part, most)?;
            part.iter().zip(names).for_each(|(&at, names)| found[at] = names);
        }
        for at in odd {
            found[at] = gallery.find(&[vectors[at]], most).remove(0);
        }
        Ok(found)
    }

    /// Of vectors of the length 1 that have as many numbers as the gallery's.
    fn compare(&mut self, gallery: &DeviceGallery, vectors: &[&[f32]], most: usize) -> Result<Vec<Vec<Likeness>>> {
        let DeviceMatcher { stream, buffers, waits, pool } = self;
        let (count, numbers, tiles) = (vectors.len(), gallery.steps * STEP, gallery.tiles());
        let slices = gallery.rows.div_ceil(SLICE);
        let [.., most_vectors] = &gallery.products;
        let fewest = gallery.products.iter().find(|(together, _)| count <= *together);
        let (together, products) = fewest.unwrap_or(most_vectors);
        let groups = count.div_ceil(*together);
        let room = groups * together;

        let needed: MatchSizes = [
            room * numbers * size_of::<f32>(),
            room * tiles * TILE * size_of::<f32>(),
            count * slices * most * size_of::<u64>(),
            count * size_of::<u32>(),
            count * most * size_of::<NamedLikeness>(),
        ];
        let is_too_small =
            |buffers: &MatchBuffers| buffers.bytes.iter().zip(&needed).any(|(bytes, needed)| bytes < needed);
        if buffers.as_ref().is_none_or(is_too_small) {
            // Its memory is given back before more is taken.
            let former: MatchSizes = buffers.take().map(|buffers| buffers.bytes).unwrap_or_default();
            let bytes = std::array::from_fn(|at| needed[at].max(former[at]));
            *buffers = Some(MatchBuffers::new(pool, stream, bytes)?);
        }
        let Some(buffers) = buffers else { unreachable!("just put there") };
        let staged = &mut cast_slice_mut::<u8, f32>(buffers.staged.host_mut())[..room * numbers];
        staged.fill(0.0);
        for (to, vector) in staged.chunks_exact_mut(numbers).zip(vectors) {
            to[..vector.len()].copy_from_slice(vector);
        }
        let best = &mut cast_slice_mut::<u8, NamedLikeness>(buffers.best.host_mut())[..count * most];
        best.fill(NamedLikeness { name: NONE, likeness: 0.0 });

        let params = MatchParams {
            known: gallery.known.address(),
            owners: gallery.owners.address(),
            vectors: buffers.vectors.address(),
            products: buffers.products.address(),
            keys: buffers.keys.address(),
            done: buffers.done.address(),
            best: buffers.best.address(),
            rows: gallery.rows as u32,
            tiles: tiles as u32,
            steps: gallery.steps as u32,
            most: most as u32,
            margin: margin(gallery.steps),
            unused: 0,
        };
        let blocks = tiles.min(gallery.multiprocessors).max(1) as u32;
        let compare = Launch { grid: (blocks, groups as u32, 1), block: (PRODUCT_THREADS, 1, 1), shared: 0 };
        let name = Launch { grid: (slices as u32, count as u32, 1), block: (NAME_THREADS as u32, 1, 1), shared: 0 };
        let queued = stream.queuing();
        let begin = stream.begin_timing();
        // SAFETY: the kernels take these parameters. Their addresses are of memory that `self` and the caller keep until `queued` has
        // ended, and which has room for so many vectors and names; nothing else uses what is written.
        unsafe {
            stream.upload(&buffers.staged.host()[..room * numbers * size_of::<f32>()], buffers.vectors.address())?;
            stream.launch(products, compare, &params)?;
            stream.launch(&gallery.best_names, name, &params)?;
        }
        stream.end_timing(begin);
        queued.record_awaited(waits)?.wait_again(waits)?;

        let best = &cast_slice::<u8, NamedLikeness>(buffers.best.host())[..count * most];
        counters::downloaded(size_of_val(best));
        let is_name = |found: &&NamedLikeness| (found.name as usize) < gallery.names;
        let likeness = |found: &NamedLikeness| Likeness { name: found.name, similarity: found.likeness };
        Ok(best.chunks_exact(most).map(|of_one| of_one.iter().take_while(is_name).map(likeness).collect()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::fakes::Fakes;
    use crate::gallery::GalleryEntry;
    use crate::test::random::Random;
    use crate::vector::normalise;

    fn gallery(dims: usize, count: usize) -> Gallery {
        let mut random = Random(3);
        Gallery::new((0..count).map(|at| {
            let vector = (0..dims).map(|_| random.unit() - 0.5).collect();
            GalleryEntry { name: format!("n{}", at % 9), vector }
        }))
    }

    /// The kernel finds each number where a lane of its warp looks for it: the inverse of `place`, as match.cu has it.
    #[test]
    fn vectors_lie_as_the_kernel_reads_them() {
        for (dims, count) in [(1, 1), (16, 32), (35, 70), (512, 33)] {
            let gallery = gallery(dims, count);
            let groups = dims.div_ceil(STEP);
            let steps = groups.next_multiple_of(AHEAD);
            for tile in 0..count.div_ceil(TILE) {
                let mut numbers = vec![0.0; steps * TILE_STEP];
                gallery.fill_tile(tile, groups, &mut numbers);
                for (at, number) in numbers.iter().enumerate() {
                    let (step, row, lane, of_four) = (at / TILE_STEP, at % TILE_STEP / 128, at % 128 / 4, at % 4);
                    let (part, slot) = (lane / 2 % PARTS, lane % 2 + lane / (2 * PARTS) * 2);
                    let (vector, of_step) = (tile * TILE + row * SLOTS + slot, part * 4 + of_four);
                    let is_there = vector < count && step < groups;
                    let wanted = if is_there { gallery.vectors[vector * groups + step][of_step] } else { 0.0 };
                    assert_eq!(*number, wanted, "{dims} {count} {tile} {at}");
                }
            }
        }
    }

    /// A product in the order of the first kernel's sums is within half of the margin, for the vectors that differ most.
    #[test]
    fn rough_products_are_within_the_margin() {
        let mut random = Random(9);
        for dims in [1_usize, 3, 16, 511, 512, 4096] {
            let steps = dims.div_ceil(STEP).next_multiple_of(AHEAD);
            for _ in 0..20 {
                let [a, b] = [(); 2].map(|()| {
                    let mut vector: Vec<f32> = (0..dims).map(|_| random.unit() - 0.25).collect();
                    assert!(normalise(&mut vector) && has_length_1(&vector));
                    vector.resize(steps * STEP, 0.0);
                    vector
                });
                let mut sums = [0f32; PARTS];
                for (at, (a, b)) in a.iter().zip(&b).enumerate() {
                    let sum = &mut sums[at % STEP / PARTS];
                    *sum = a.mul_add(*b, *sum);
                }
                let rough = (sums[0] + sums[1]) + (sums[2] + sums[3]);
                let difference = (f64::from(rough) - f64::from(product(&a, &b))).abs();
                assert!(difference < f64::from(margin(steps)) / 2.0, "{dims}: {difference}");
            }
        }
        assert!(!has_length_1(&[f32::NAN, 1.0]) && !has_length_1(&[2.0, 0.0]) && !has_length_1(&[]));
    }

    #[test]
    fn large_galleries_are_worth_a_gpu() {
        assert!(!Gallery::default().is_worth_a_gpu() && !gallery(64, 1000).is_worth_a_gpu());
        assert!(gallery(1024, 1024).is_worth_a_gpu());
    }

    /// What is queued is waited for where a call fails, and memory stays until then. The kernels of the fakes do nothing, so nobody is
    /// found.
    #[test]
    fn galleries_wait_for_their_work() {
        let Some(fakes) = Fakes::of(module_path!(), "galleries_wait_for_their_work") else { return };
        let context = fakes.context();
        let vector = [1.0, 0.0, 0.0];
        fakes.each_call_fails("a copy of a gallery", || gallery(3, 100).upload(&context));
        let gallery = gallery(3, 100);
        let on_gpu = gallery.upload(&context).unwrap();
        let mut matcher = DeviceMatcher::new(&context).unwrap();
        fakes.each_call_fails("vectors", || matcher.find(&gallery, &[&vector[..]; 3], 2));
        fakes.each_call_fails("the first vectors", || {
            DeviceMatcher::new(&context)?.find(&gallery, &[&vector[..]; 30], 2)
        });
        assert!(matcher.find(&gallery, &[&vector], 2).unwrap()[0].is_empty());
        // What the GPU does not do, the host does.
        for (vector, most) in [([2.0, 0.0, 0.0], 2), (vector, 101)] {
            assert_eq!(matcher.find(&gallery, &[&vector], most).unwrap(), gallery.find(&[&vector], most));
        }
        fakes.lack(1);
        let error = self::gallery(3, 10).upload(&context).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        drop((on_gpu, gallery, matcher));
        assert_eq!((fakes.count(c"fake_pending"), fakes.count(c"fake_busy_frees")), (0, 0));
    }

    #[test]
    fn who_has_a_gallery_in_a_context_shares_the_copy() {
        let Some(fakes) = Fakes::of(module_path!(), "who_has_a_gallery_in_a_context_shares_the_copy") else { return };
        let (context, gallery) = (fakes.context(), gallery(3, 100));
        assert!(Gallery::default().upload(&context).unwrap().is_none() && gallery.on_gpu(&context).is_none());
        let first = gallery.upload(&context).unwrap().unwrap();
        let second = gallery.upload(&context).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, &gallery.on_gpu(&context).unwrap()));
        drop(first);
        assert!(gallery.on_gpu(&context).is_some());
        drop(second);
        assert!(gallery.on_gpu(&context).is_none(), "the last one has freed it");
        // One that failed is tried again by the next one.
        fakes.lack(1);
        assert!(gallery.upload(&context).is_err() && gallery.on_gpu(&context).is_none());
        assert!(gallery.upload(&context).unwrap().is_some());
        assert_eq!((fakes.count(c"fake_pending"), fakes.count(c"fake_busy_frees")), (0, 0));
    }

    #[test]
    fn a_copy_is_made_once_for_all_threads() {
        let Some(fakes) = Fakes::of(module_path!(), "a_copy_is_made_once_for_all_threads") else { return };
        let (context, gallery) = (fakes.context(), gallery(3, 100));
        let copies: Vec<Arc<DeviceGallery>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| gallery.upload(&context).unwrap().unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(copies.iter().all(|copy| Arc::ptr_eq(copy, &copies[0])));
    }
}
