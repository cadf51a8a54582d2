// SPDX-License-Identifier: MPL-2.0
//! trtinfer with a model on a server.

use std::sync::Arc;

use crate::common::{launch, shapes};
use crate::kserve_server::{FakeServer, Reply, answers, served};

const FRAMES: &str = "videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=64,height=64";

fn pipeline(model: &str, more: &str) -> String {
    format!("{FRAMES} ! trtpreprocess ! trtinfer model-file={model} {more} ! queue ! trtnms ! fakesink")
}

#[test]
fn a_pipeline_runs_by_a_server() {
    let server = FakeServer::start(answers(served("shapes", &shapes())));
    let address = server.address("shapes");
    for more in ["", "backend=kserve shared-memory=on", "backend=cpu shared-memory=off parallel-runs=2"] {
        launch(&pipeline(&address, more)).expect_success();
    }
    assert!(server.connections() > 0);
}

#[test]
fn what_a_server_does_not_do_is_an_error_of_the_element() {
    let usual = answers(served("shapes", &shapes()));
    let server = FakeServer::start(Arc::new(move |method, message| match method {
        "ModelInfer" => Reply::Never,
        _ => usual(method, message),
    }));
    let late = pipeline(&server.address("shapes"), "request-timeout=200");
    launch(&late).expect_error("LibraryError::Failed", &["has not answered within 0.2 s", "request-timeout"]);
    let other = pipeline(&server.address("other"), "");
    launch(&other).expect_error("ResourceError::NotFound", &["does not serve the model other"]);
    let secret = pipeline("grpc://me:Zq9@triton/m", "");
    launch(&secret).expect_error("ResourceError::Settings", &["Cannot use the address grpc://***@triton/m"]);
    let file = pipeline(&shapes(), "backend=kserve");
    launch(&file).expect_error("ResourceError::Settings", &["is a file, and backend=kserve runs models on a server"]);
}
