// SPDX-License-Identifier: MPL-2.0
//! Chromium without a window, driven by its DevTools protocol over two pipes.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// `None` where it is not installed, with a word about it.
fn installed() -> Option<PathBuf> {
    let found =
        ["/usr/bin/chromium", "/usr/bin/google-chrome"].map(PathBuf::from).into_iter().find(|path| path.exists());
    if found.is_none() {
        println!("SKIP: chromium is not installed.");
    }
    found
}

pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    number: u64,
    /// What the page complained about: the console's errors and exceptions.
    pub errors: Vec<Value>,
}

impl Browser {
    /// Its pipes, its profile and all that it leaves behind are in that folder.
    pub fn start(folder: &Path) -> Option<Self> {
        let chromium = installed()?;
        let (commands, answers) = (folder.join("commands"), folder.join("answers"));
        for pipe in [&commands, &answers] {
            assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
        }
        let child = Command::new("bash")
            .args(["-c", "exec \"$@\" 3<\"$COMMANDS\" 4>\"$ANSWERS\"", "bash"])
            .arg(chromium)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg("about:blank")
            .envs([("COMMANDS", commands.as_path()), ("ANSWERS", &answers), ("TMPDIR", folder)])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(commands).unwrap();
        let from = BufReader::new(File::open(answers).unwrap());
        let mut browser = Browser { child, to, from, session: None, number: 0, errors: Vec::new() };
        let targets = browser.call("Target.getTargets", json!({}));
        let page = targets["targetInfos"].as_array().unwrap().iter().find(|target| target["type"] == "page").unwrap();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": page["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(String::from);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        self.number
    }

    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let number = self.send(method, params);
        loop {
            let mut text = Vec::new();
            self.from.read_until(0, &mut text).unwrap();
            let Some((0, text)) = text.split_last() else { panic!("{method}: the browser ended") };
            let mut message: Value = serde_json::from_slice(text).unwrap();
            if message["id"] == number {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
            match message["method"].as_str() {
                Some("Log.entryAdded") if message["params"]["entry"]["level"] == "error" => self.errors.push(message),
                Some("Runtime.exceptionThrown") => self.errors.push(message),
                // The user agrees.
                Some("Page.javascriptDialogOpening") => {
                    self.send("Page.handleJavaScriptDialog", json!({"accept": true}));
                }
                _ => {}
            }
        }
    }

    /// What an expression of JavaScript gives, once a promise is kept.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut found = self.call("Runtime.evaluate", params);
        assert!(found.get("exceptionDetails").is_none(), "{expression}: {found}");
        found["result"]["value"].take()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        super::until(expression, || self.evaluate(expression) == true);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
