// SPDX-License-Identifier: MPL-2.0
fn main() {
    // Otherwise any file in the folder, such as a test or a page, would rebuild everything.
    println!("cargo::rerun-if-changed=build.rs");
    // The library registers functions that run at the end of the program. An application that loads it by dlopen() must
    // not take it away by dlclose() before.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // Programs that link the library look for this name. Packages set it; in target/ the file has another one.
        println!("cargo::rerun-if-env-changed=GSTTRT_SONAME");
        if let Ok(name) = std::env::var("GSTTRT_SONAME") {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
        }
    }
}
