// SPDX-License-Identifier: MPL-2.0
fn main() {
    // The commit is read when the code changes. Otherwise any file in the folder, such as a test or a page, would rebuild everything.
    println!("cargo::rerun-if-changed=src");
    gst_plugin_version_helper::info();
    // The library registers functions that run at the end of the program, and types that GLib never lets go. An application that
    // loads it by dlopen() must not take it away by dlclose() before.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
