// SPDX-License-Identifier: MPL-2.0
//! The tests of the elements, of the pages and of the C library, in one program: linking one takes seconds, linking sixty
//! takes minutes. `cargo nextest run trtnms::` runs those of one file.

mod common;

mod align;
#[path = "../core/tests/common/allocations.rs"]
mod allocations;
mod analytics;
mod analytics_clips;
mod anomaly;
mod auto_interval;
mod batching;
mod capi;
mod classify;
mod clips;
mod cycles;
mod detr;
mod embed;
mod examples;
mod frames;
mod gpu_batching;
mod gpu_chain;
mod gpu_classes;
mod gpu_nvmm;
mod gpu_properties;
mod gpu_rectangles;
mod gst_cuda;
mod honest;
mod input_values;
mod inspect;
#[cfg(feature = "kafka")]
#[path = "../core/tests/common/kafka_cluster.rs"]
mod kafka_cluster;
mod kserve;
#[path = "../core/tests/common/kserve_server.rs"]
mod kserve_server;
mod labels;
mod layout_file;
mod layouts;
mod loading;
mod maps;
mod maps_clips;
mod misread;
mod model_life;
mod models_refused;
mod motion_gate;
mod neighbours;
mod nvenc_caps;
mod nvmm;
mod obb;
mod onnxruntime;
mod onvif;
mod open_rows;
mod openvino;
mod pipeline;
mod pose;
mod readme;
mod reference;
mod regions;
mod replace_model;
mod seek;
mod segment;
mod sequences;
mod session;
mod slices;
mod stats;
mod structure;
mod tensor_meta;
mod text;
mod track_clips;
mod trtanalytics;
mod trtinfer;
mod trtmatch;
mod trtnms;
mod trtnms_drawing;
mod trtoverlay;
mod trtoverlay_privacy;
mod trtpreprocess;
mod trtpublish;
mod trtpublish_brokers;
mod trtpublish_end;
mod trtpublish_hostile;
mod trtpublish_in_video;
mod trttrack;
mod two_models;
mod unixfd;
mod words;
