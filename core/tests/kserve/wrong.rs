// SPDX-License-Identifier: MPL-2.0
//! Answers that are none.

use proptest::prelude::*;

use super::*;
use crate::cases::cases;

/// What is answered to a run, and what is said of it.
fn wrong_answers() -> Vec<(Reply, &'static str)> {
    let right = (small().run)(&plain(&picture(1)));
    let [PlainTensor { name, datatype, shape, bytes }] = &right[..] else { panic!("one") };
    let answer = |name: &str, datatype: &str, shape: &[i64], raw: &[&[u8]]| {
        let output =
            InferOutputTensor { name: name.into(), datatype: datatype.into(), shape: shape.into(), contents: None };
        let raw = raw.iter().map(|raw| raw.to_vec()).collect();
        WholeInferResponse { outputs: vec![output], raw }.encode_to_vec()
    };
    let of =
        |name: &str, datatype: &str, shape: &[i64], raw: &[&[u8]]| Reply::Message(answer(name, datatype, shape, raw));
    let whole = answer(name, datatype, shape, &[bytes]);
    let headers = frame(1, 4, 1, &[0x88]);
    let huge = [&headers[..], &[0x10, 0, 1, 0, 0, 0, 0, 0, 1]].concat();
    vec![
        (of("other", datatype, shape, &[bytes]), "output scores is missing"),
        (Reply::Message(Vec::new()), "output scores is missing"),
        (of(name, "INT32", shape, &[bytes]), "output scores f32 ?x4 comes as INT32 1x4"),
        (of(name, "", shape, &[bytes]), "comes as"),
        (of(name, datatype, &[1, 5], &[bytes]), "comes as FP32 1x5"),
        (of(name, datatype, &[4], &[bytes]), "comes as FP32 4"),
        (of(name, datatype, &[-1, 4], &[bytes]), "comes as FP32 ?x4"),
        (of(name, datatype, &[i64::MAX, 4], &[bytes]), "is too large"),
        (of(name, datatype, &[1 << 40, 4], &[bytes]), "has 16 bytes in place of 17592186044416"),
        (of(name, datatype, shape, &[&bytes[..15]]), "has 15 bytes in place of 16"),
        (of(name, datatype, shape, &[&[&bytes[..], &[0]].concat()]), "has 17 bytes in place of 16"),
        (of(name, datatype, shape, &[]), "has no bytes"),
        (of(name, datatype, shape, &[bytes, bytes]), "not the protocol's"),
        (Reply::Message(whole[..whole.len() - 1].to_vec()), "was cut"),
        (Reply::Message(vec![0xff; 100]), "not the protocol's"),
        (Reply::Message([0x2a, 0, 0x2a, 0].repeat(600)), "not the protocol's"),
        (Reply::Message(vec![0; 3 << 20]), "the answer has more than"),
        (Reply::Http("404"), "HTTP 404, so it is no server of gRPC"),
        (Reply::Bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), "its port for HTTP"),
        (Reply::Bytes(vec![0x15, 3, 3, 0, 2, 2, 70, 0, 0]), "it speaks TLS"),
        (Reply::Bytes(vec![0xff; 100]), "longer than asked for"),
        (Reply::Bytes(huge), "longer than asked for"),
        (Reply::Bytes(frame(1, 4, 1, &[0xbe])), "its headers cannot be read"),
        (Reply::Bytes(frame(1, 8 | 4, 1, &[9, 0])), "padding is longer"),
        (Reply::Bytes(frame(0, 8, 1, &[9, 0])), "padding is longer"),
        (Reply::Bytes(frame(9, 4, 1, &[0x88])), "headers that nothing asked for"),
        (Reply::Bytes(frame(8, 0, 0, &[0; 4])), "no such size"),
        (Reply::Bytes(frame(4, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff])), "no such size"),
        (Reply::Bytes([frame(1, 0, 1, &[0x88]), frame(6, 0, 0, &[0; 8])].concat()), "headers do not go on"),
    ]
}

#[test]
fn what_is_no_answer_is_an_error_and_the_next_frame_goes_on() {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let next = answers.clone();
    let server =
        FakeServer::start(but(
            small(),
            move |method, _| {
                if method == "ModelInfer" { next.lock().unwrap().pop() } else { None }
            },
        ));
    let mut model = open(&server.address("small"), 1, &[("shared-memory", "off")]).unwrap();
    for (reply, says) in wrong_answers() {
        answers.lock().unwrap().push(reply);
        // On a connection of its own, so that the numbers in the frames are right.
        let mut other = open(&server.address("small"), 1, &[("shared-memory", "off")]).unwrap();
        let error = other.run(&[picture(1)]).unwrap_err();
        let text = error.message();
        assert!(error.kind() == ErrorKind::Run && text.contains(says), "{says}: {text}");
        assert!(text.contains("127.0.0.1") && text.contains("Check "), "{text}");
        assert_eq!(plain(&other.run(&[picture(2)]).unwrap()[0])[0].bytes, small_output(2), "{says}");
    }
    // Numbers that are none are numbers.
    let nan = [f32::NAN; 4].map(f32::to_le_bytes).concat();
    let output =
        InferOutputTensor { name: "scores".into(), datatype: "FP32".into(), shape: vec![1, 4], contents: None };
    let contents = InferOutputTensor { contents: Some([&[0x32, 16], &nan[..]].concat()), ..output.clone() };
    for (output, raw) in [(output, vec![nan.clone()]), (contents, Vec::new())] {
        let answer = WholeInferResponse { outputs: vec![output], raw }.encode_to_vec();
        answers.lock().unwrap().push(Reply::Message(answer));
        assert_eq!(plain(&model.run(&[picture(1)]).unwrap()[0])[0].bytes, nan);
    }
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn any_answer_ends(
        begin in 0usize..4,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        kind in 0u8..11, flags in any::<u8>(), length in 0usize..40,
    ) {
        // Frames with any content, or no frames.
        let bytes = match begin {
            0 => bytes,
            1 => [frame(1, 4, 1, &[0x88]), bytes].concat(),
            2 => frame(kind, flags, 1, &bytes[..length.min(bytes.len())]),
            _ => [frame(1, 4, 1, &[0x88]), frame(kind, flags, 1, &bytes[..length.min(bytes.len())])].concat(),
        };
        let reply = Mutex::new(Some(Reply::Bytes(bytes)));
        let handler = but(small(), move |method, _| if method == "ModelInfer" { reply.lock().unwrap().take() } else { None });
        let server = FakeServer::start(handler);
        let mut model = open(&server.address("small"), 1, &[("shared-memory", "off")]).unwrap();
        // The connection ends behind it: then it is tried again.
        if let Ok(outputs) = model.run(&[picture(1)]) {
            prop_assert_eq!(&plain(&outputs[0])[0].bytes, &small_output(1));
        }
    }
}
