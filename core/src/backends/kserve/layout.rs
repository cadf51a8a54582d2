// SPDX-License-Identifier: MPL-2.0
//! Where the tensors of a request lie in memory that the server has too.

use std::collections::HashMap;

use super::messages::InferParameter;

/// Tensors begin at multiples of this, as kernels want it on a GPU.
const ALIGNMENT: usize = 256;

/// Where a tensor begins, and its bytes.
pub type TensorPlace = (usize, usize);

#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub inputs: Vec<TensorPlace>,
    /// Empty where outputs come with the answer.
    pub outputs: Vec<TensorPlace>,
    pub bytes: usize,
}

impl Layout {
    /// Of so many bytes each. `None` where all of them are more than `most`.
    pub fn new(
        inputs: impl IntoIterator<Item = usize>,
        outputs: impl IntoIterator<Item = usize>,
        most: usize,
    ) -> Option<Self> {
        let mut end = 0usize;
        let mut place = |bytes: usize| {
            let at = end;
            end = at.checked_add(bytes.checked_next_multiple_of(ALIGNMENT)?).filter(|&end| end <= most)?;
            Some((at, bytes))
        };
        let inputs = inputs.into_iter().map(&mut place).collect::<Option<_>>()?;
        let outputs = outputs.into_iter().map(&mut place).collect::<Option<_>>()?;
        Some(Layout { inputs, outputs, bytes: end })
    }
}

/// The same, as requests say it.
pub fn parameters(region: &str, (at, bytes): TensorPlace) -> HashMap<String, InferParameter> {
    let number = |number: usize| InferParameter { int64_param: Some(number as i64), string_param: None };
    let region = InferParameter { int64_param: None, string_param: Some(region.into()) };
    HashMap::from([
        ("shared_memory_region".into(), region),
        ("shared_memory_offset".into(), number(at)),
        ("shared_memory_byte_size".into(), number(bytes)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_do_not_overlap_and_fit() {
        let layout = Layout::new([12, 256], [0, 1], 1 << 20).unwrap();
        assert_eq!(
            (layout.inputs, layout.outputs, layout.bytes),
            (vec![(0, 12), (256, 256)], vec![(512, 0), (512, 1)], 768)
        );
        assert_eq!(Layout::new([12, 256], [1], 767), None);
        assert_eq!(Layout::new([usize::MAX], [1], usize::MAX), None);
        assert_eq!(Layout::new([1], [usize::MAX - 300], usize::MAX), None);
    }
}
