// SPDX-License-Identifier: MPL-2.0
//! `gst-trt completions`: what a shell needs to complete the command line.

use clap_complete::Shell;

use crate::failure::{Failure, Status};
use crate::terminal::print;

const EXAMPLES: &str = "\
Examples:
  gst-trt completions bash > ~/.local/share/bash-completion/completions/gst-trt
  gst-trt completions fish > ~/.config/fish/completions/gst-trt.fish
  gst-trt completions zsh > ~/.zfunc/_gst-trt";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell that reads them
    shell: Shell,
}

pub fn run(args: &CompletionsArgs, mut program: clap::Command) -> Result<Status, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "gst-trt", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Status::Done)
}
