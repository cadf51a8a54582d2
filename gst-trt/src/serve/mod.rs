// SPDX-License-Identifier: MPL-2.0
//! `gst-trt serve`.

#![allow(dead_code)] // until the subcommand starts them

pub mod control;
mod http;
