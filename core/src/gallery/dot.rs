// SPDX-License-Identifier: MPL-2.0
//! Dot products of bytes: of many rows with several vectors, with each row read from memory once.
//!
//! Rows come in blocks of [`ROWS`]. In a block, [`STEP`] numbers of each row lie together: one register has the same step of all
//! rows, and is multiplied by that step of one vector after the other. A block of usual vectors stays in the first cache while that
//! is done. Sums are whole numbers, and the same on each processor.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::{
    vaddvq_s32, vdupq_n_s32, vget_high_s16, vget_low_s16, vget_low_u8, vld1_s16, vld1q_u8, vmlal_s16, vmovl_high_u8,
    vmovl_u8, vreinterpretq_s16_u16,
};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepu8_epi16, _mm256_hadd_epi32, _mm256_madd_epi16,
    _mm256_permute4x64_epi64, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm512_dpbusd_epi32, _mm512_load_si512, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_storeu_si512,
};

/// Rows of a block.
pub const ROWS: usize = 16;

/// Numbers of a row that lie together.
pub const STEP: usize = 4;

/// What is added to each number of a row: VNNI multiplies bytes without a sign by bytes with one. Sums begin with what takes
/// it away again.
const OFFSET: i32 = 128;

/// How products are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DotMethod {
    /// AVX-512 VNNI: 64 products an instruction.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// AVX2: 16 products an instruction.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// NEON, which each 64-bit ARM has: 4 products an instruction.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// What the compiler makes of it. Tests compare the others with it.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))]
    Plain,
}

impl DotMethod {
    /// The fastest one that this processor has.
    pub fn of_this_processor() -> DotMethod {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                return DotMethod::Vnni;
            }
            if is_x86_feature_detected!("avx2") {
                return DotMethod::Avx2;
            }
        }
        #[cfg(target_arch = "aarch64")]
        return DotMethod::Neon;
        #[cfg(not(target_arch = "aarch64"))]
        DotMethod::Plain
    }

    /// Whether it takes less than products of floats. Processors with SSE2 alone multiply four floats at a time, and bytes hardly
    /// faster.
    pub fn is_faster_than_floats(self) -> bool {
        self != DotMethod::Plain
    }

    /// Those that this processor has.
    #[cfg(test)]
    pub fn all() -> Vec<DotMethod> {
        #[allow(unused_mut)] // other processors have no more
        let mut all = vec![DotMethod::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            let has_vnni = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
            all.extend(is_x86_feature_detected!("avx2").then_some(DotMethod::Avx2));
            all.extend(has_vnni.then_some(DotMethod::Vnni));
        }
        #[cfg(target_arch = "aarch64")]
        all.push(DotMethod::Neon);
        all
    }
}

/// The same step of all rows of a block.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct RowStep([[u8; STEP]; ROWS]);

impl Default for RowStep {
    /// All numbers are 0.
    fn default() -> Self {
        RowStep([[OFFSET as u8; STEP]; ROWS])
    }
}

impl RowStep {
    /// Sets the numbers of a row: at most [`STEP`], and the others stay as they are.
    pub fn set(&mut self, row: usize, numbers: &[i8]) {
        for (to, &number) in self.0[row].iter_mut().zip(numbers) {
            *to = (i32::from(number) + OFFSET) as u8;
        }
    }
}

/// Vectors that rows are multiplied by, in groups whose sums fit into the registers.
#[derive(Debug)]
pub struct Factors<T> {
    groups: Vec<FactorGroup<T>>,
}

#[derive(Debug)]
struct FactorGroup<T> {
    /// The number of its first vector.
    first: usize,
    /// For each step the numbers of one vector after the other.
    numbers: Vec<[T; STEP]>,
    /// For each vector what its sums begin with.
    begins: Vec<i32>,
}

impl<T: Copy + From<i8>> Factors<T> {
    /// Of vectors of one length. `widths` are how many a group may have: the most first, and 1 at the end.
    fn new(vectors: &[Vec<i8>], widths: &[usize]) -> Self {
        let (mut groups, mut first) = (Vec::new(), 0);
        while first < vectors.len() {
            let left = vectors.len() - first;
            let width = widths.iter().copied().find(|&width| width <= left).unwrap_or(1);
            groups.push(FactorGroup::new(first, &vectors[first..][..width]));
            first += width;
        }
        Factors { groups }
    }
}

impl<T: Copy + From<i8>> FactorGroup<T> {
    fn new(first: usize, vectors: &[Vec<i8>]) -> Self {
        let (width, steps) = (vectors.len(), vectors[0].len().div_ceil(STEP));
        let mut numbers = vec![[T::from(0i8); STEP]; width * steps];
        for (at, vector) in vectors.iter().enumerate() {
            for (of_step, part) in numbers.chunks_exact_mut(width).zip(vector.chunks(STEP)) {
                of_step[at].iter_mut().zip(part).for_each(|(to, &number)| *to = T::from(number));
            }
        }
        let sum = |vector: &Vec<i8>| vector.iter().map(|&number| i32::from(number)).sum::<i32>();
        FactorGroup { first, numbers, begins: vectors.iter().map(|vector| -OFFSET * sum(vector)).collect() }
    }
}

#[cfg(target_arch = "x86_64")]
impl Factors<i8> {
    /// For [`vnni`].
    pub fn for_vnni(vectors: &[Vec<i8>]) -> Self {
        Factors::new(vectors, &[16, 8, 4, 2, 1])
    }
}

impl Factors<i16> {
    /// For [`avx2`].
    #[cfg(target_arch = "x86_64")]
    pub fn for_avx2(vectors: &[Vec<i8>]) -> Self {
        Factors::new(vectors, &[2, 1])
    }

    /// For [`plain`] and `neon`: one after the other.
    pub fn one_by_one(vectors: &[Vec<i8>]) -> Self {
        Factors::new(vectors, &[1])
    }
}

/// The products of each row of a block with each vector.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni")]
pub fn vnni(block: &[RowStep], factors: &Factors<i8>, products: &mut [[i32; ROWS]]) {
    for group in &factors.groups {
        let products = &mut products[group.first..];
        match group.begins.len() {
            16 => vnni_group::<16>(block, group, products),
            8 => vnni_group::<8>(block, group, products),
            4 => vnni_group::<4>(block, group, products),
            2 => vnni_group::<2>(block, group, products),
            _ => vnni_group::<1>(block, group, products),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni")]
fn vnni_group<const N: usize>(block: &[RowStep], group: &FactorGroup<i8>, products: &mut [[i32; ROWS]]) {
    let mut sums = [_mm512_setzero_si512(); N];
    for (sums, &begin) in sums.iter_mut().zip(&group.begins) {
        *sums = _mm512_set1_epi32(begin);
    }
    let (of_steps, _) = group.numbers.as_chunks::<N>();
    for (step, numbers) in block.iter().zip(of_steps) {
        // SAFETY: a step has 64 bytes, and its address is a multiple of as many.
        let rows = unsafe { _mm512_load_si512((&raw const step.0).cast()) };
        for (sums, &numbers) in sums.iter_mut().zip(numbers) {
            *sums = _mm512_dpbusd_epi32(*sums, rows, _mm512_set1_epi32(bytemuck::cast(numbers)));
        }
    }
    for (products, sums) in products.iter_mut().zip(sums) {
        // SAFETY: the products of 16 rows have 64 bytes.
        unsafe { _mm512_storeu_si512(products.as_mut_ptr().cast(), sums) };
    }
}

/// The products of each row of a block with each vector.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
pub fn avx2(block: &[RowStep], factors: &Factors<i16>, products: &mut [[i32; ROWS]]) {
    for group in &factors.groups {
        let products = &mut products[group.first..];
        match group.begins.len() {
            2 => avx2_group::<2>(block, group, products),
            _ => avx2_group::<1>(block, group, products),
        }
    }
}

/// Numbers become 16 bits wide, because products of two bytes of which one has no sign do not fit into the sums of
/// `_mm256_maddubs_epi16`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2_group<const N: usize>(block: &[RowStep], group: &FactorGroup<i16>, products: &mut [[i32; ROWS]]) {
    /// Rows of a register.
    const QUARTER: usize = ROWS / 4;
    // Two sums of each row.
    let mut sums = [[_mm256_setzero_si256(); 4]; N];
    let (of_steps, _) = group.numbers.as_chunks::<N>();
    for (step, numbers) in block.iter().zip(of_steps) {
        let mut wide = [_mm256_setzero_si256(); 4];
        for (wide, rows) in wide.iter_mut().zip(step.0.as_chunks::<QUARTER>().0) {
            // SAFETY: a step of four rows has 16 bytes.
            *wide = _mm256_cvtepu8_epi16(unsafe { _mm_loadu_si128(rows.as_ptr().cast()) });
        }
        for (sums, &numbers) in sums.iter_mut().zip(numbers) {
            let numbers = _mm256_set1_epi64x(bytemuck::cast(numbers));
            for (sums, wide) in sums.iter_mut().zip(wide) {
                *sums = _mm256_add_epi32(*sums, _mm256_madd_epi16(wide, numbers));
            }
        }
    }
    for ((products, sums), &begin) in products.iter_mut().zip(sums).zip(&group.begins) {
        let begin = _mm256_set1_epi32(begin);
        let ([a, b, c, d], (low, high)) = (sums, products.split_at_mut(ROWS / 2));
        for (products, first, second) in [(low, a, b), (high, c, d)] {
            // The sums of two rows of the first, of two of the second, and so on: 0, 1, 4, 5, 2, 3, 6, 7.
            let rows = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(first, second));
            // SAFETY: the products of eight rows have 32 bytes.
            unsafe { _mm256_storeu_si256(products.as_mut_ptr().cast(), _mm256_add_epi32(rows, begin)) };
        }
    }
}

/// The products of each row of a block with each vector.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
pub fn neon(block: &[RowStep], factors: &Factors<i16>, products: &mut [[i32; ROWS]]) {
    /// Rows of a register.
    const QUARTER: usize = ROWS / 4;
    for (group, products) in factors.groups.iter().zip(products) {
        // Four sums of each row.
        let mut sums = [vdupq_n_s32(0); ROWS];
        for (step, numbers) in block.iter().zip(&group.numbers) {
            // SAFETY: a step has four numbers.
            let numbers = unsafe { vld1_s16(numbers.as_ptr()) };
            let quarters = step.0.as_chunks::<QUARTER>().0;
            for (sums, rows) in sums.as_chunks_mut::<QUARTER>().0.iter_mut().zip(quarters) {
                // SAFETY: a step of four rows has 16 bytes.
                let rows = unsafe { vld1q_u8(rows.as_ptr().cast()) };
                let low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(rows)));
                let high = vreinterpretq_s16_u16(vmovl_high_u8(rows));
                sums[0] = vmlal_s16(sums[0], vget_low_s16(low), numbers);
                sums[1] = vmlal_s16(sums[1], vget_high_s16(low), numbers);
                sums[2] = vmlal_s16(sums[2], vget_low_s16(high), numbers);
                sums[3] = vmlal_s16(sums[3], vget_high_s16(high), numbers);
            }
        }
        for (product, sums) in products.iter_mut().zip(sums) {
            *product = group.begins[0] + vaddvq_s32(sums);
        }
    }
}

/// The products of each row of a block with each vector.
pub fn plain(block: &[RowStep], factors: &Factors<i16>, products: &mut [[i32; ROWS]]) {
    for (group, products) in factors.groups.iter().zip(products) {
        let mut sums = [[0i32; STEP]; ROWS];
        for (step, numbers) in block.iter().zip(&group.numbers) {
            for (sums, rows) in sums.iter_mut().zip(&step.0) {
                for (sum, (&row, &number)) in sums.iter_mut().zip(rows.iter().zip(numbers)) {
                    *sum += i32::from(row) * i32::from(number);
                }
            }
        }
        for (product, sums) in products.iter_mut().zip(sums) {
            *product = group.begins[0] + sums.iter().sum::<i32>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::random::Random;

    fn products(method: DotMethod, block: &[RowStep], vectors: &[Vec<i8>]) -> Vec<[i32; ROWS]> {
        let mut products = vec![[7; ROWS]; vectors.len()];
        match method {
            #[cfg(target_arch = "x86_64")]
            DotMethod::Vnni => {
                // SAFETY: `DotMethod::all` has only those of this processor.
                unsafe { vnni(block, &Factors::for_vnni(vectors), &mut products) }
            }
            #[cfg(target_arch = "x86_64")]
            DotMethod::Avx2 => {
                // SAFETY: as above.
                unsafe { avx2(block, &Factors::for_avx2(vectors), &mut products) }
            }
            #[cfg(target_arch = "aarch64")]
            DotMethod::Neon => {
                // SAFETY: as above.
                unsafe { neon(block, &Factors::one_by_one(vectors), &mut products) }
            }
            DotMethod::Plain => plain(block, &Factors::one_by_one(vectors), &mut products),
        }
        products
    }

    /// With groups of all widths, steps that are full and that are not, and the largest numbers there are.
    #[test]
    fn each_method_gives_the_same_products() {
        let mut random = Random(3);
        for (dims, count, extreme) in
            [(1usize, 1, false), (3, 2, true), (16, 5, false), (511, 31, false), (4096, 3, true)]
        {
            let mut number = || match extreme {
                true => random.one_of(&[-127i8, 127]),
                false => (random.below(255) as i32 - 127) as i8,
            };
            let mut make =
                |count: usize| -> Vec<Vec<i8>> { (0..count).map(|_| (0..dims).map(|_| number()).collect()).collect() };
            // The last row stays empty.
            let (rows, mut vectors) = (make(ROWS - 1), make(count));
            vectors[0] = rows[0].clone();
            let mut block = vec![RowStep::default(); dims.div_ceil(STEP)];
            for (at, row) in rows.iter().enumerate() {
                block.iter_mut().zip(row.chunks(STEP)).for_each(|(step, part)| step.set(at, part));
            }
            let product = |a: &[i8], b: &[i8]| a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum::<i32>();
            let of_vector = |vector: &Vec<i8>| {
                let mut wanted = [0; ROWS];
                wanted.iter_mut().zip(&rows).for_each(|(wanted, row)| *wanted = product(row, vector));
                wanted
            };
            let wanted: Vec<[i32; ROWS]> = vectors.iter().map(of_vector).collect();
            for method in DotMethod::all() {
                assert_eq!(products(method, &block, &vectors), wanted, "{method:?} {dims} {count}");
            }
        }
        assert!(DotMethod::all().contains(&DotMethod::of_this_processor()));
    }
}
