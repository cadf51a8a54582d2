// SPDX-License-Identifier: MPL-2.0
//! Arbitrary outputs of a model.

use super::*;
use crate::memory::Pool;
use crate::test::cases;
use proptest::prelude::*;

fn output() -> impl Strategy<Value = TensorDesc> {
    let names = ["output", "outputs", "output0", "labels", "boxes", "scores", "num_dets", "det_boxes", "output1", ""];
    let dim = prop::sample::select(vec![1i64, 1, 4, 5, 6, 7, 21, 63, 84, 0, -1, i64::MAX]);
    let dtype =
        prop_oneof![2 => Just(DType::F32), 2 => Just(DType::F16), 1 => prop::sample::select(DType::ALL.to_vec())];
    let dims = prop_oneof![3 => prop::collection::vec(dim.clone(), 3), 1 => prop::collection::vec(dim, 0..5)];
    (prop::sample::select(names.to_vec()), dtype, dims).prop_map(|(name, dtype, dims)| desc(name, dtype, &dims))
}

fn choice() -> impl Strategy<Value = Option<&'static HeadFormat>> {
    prop::option::of(prop::sample::select(HEADS.to_vec()))
}

proptest! {
    #![proptest_config(cases(10_000))]

    /// For any outputs with any contents: an error or detections, and those are boxes.
    #[test]
    fn never_panics(
        choice in choice(),
        outputs in prop::collection::vec(output(), 0..5),
        classes in prop::option::of(0..90usize),
        size in prop::option::of(1..70u32),
        bytes in prop::collection::vec(any::<u8>(), 64),
    ) {
        let hints = ModelHints { classes, input: size.map(|size| (size, size)), ..ModelHints::default() };
        let early = recognise(choice, &outputs, &hints);
        let Ok(decoder) = Decoder::new(choice, &outputs, &hints) else { return Ok(()) };
        prop_assert_eq!(early, Ok(decoder.format()));
        if outputs.iter().any(|desc| desc.bytes().is_none_or(|bytes| bytes > 1 << 20)) {
            return Ok(());
        }
        let tensors: Vec<Tensor> = outputs.iter().map(|desc| {
            Tensor::fill(&Pool::default(), desc.clone(), |block| {
                block.iter_mut().zip(bytes.iter().cycle()).for_each(|(to, from)| *to = *from);
                Ok::<_, Error>(())
            }).unwrap()
        }).collect();
        let mut out = Vec::new();
        decoder.decode(&tensors, &Thresholds::uniform(0.0), &mut out).unwrap();
        for detection in out {
            prop_assert!(detection.bbox.is_valid() && detection.score.is_finite() && detection.angle.is_finite());
            prop_assert!((detection.class as usize) < decoder.classes().unwrap_or(usize::MAX));
        }
    }
}
