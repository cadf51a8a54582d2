// SPDX-License-Identifier: MPL-2.0
//! `gst-trt serve` as a process whose lines are waited for, and an RTSP server.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use super::port::free_port;
use super::{command, path};

const TIMEOUT: Duration = Duration::from_secs(90);

/// Lines of a stream of a process, as they come, and those that nobody has asked for yet.
struct Lines(Receiver<String>, RefCell<Vec<String>>);

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        thread::spawn(move || {
            BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| sender.send(line).map_err(drop))
        });
        Lines(lines, RefCell::default())
    }

    /// The next line that is wanted. The others stay for others.
    fn until(&self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut others = self.1.borrow_mut();
        if let Some(position) = others.iter().position(|line| is_wanted(line)) {
            return others.remove(position);
        }
        loop {
            match self.0.recv_timeout(TIMEOUT) {
                Ok(line) if is_wanted(&line) => return line,
                Ok(line) => others.push(line),
                Err(error) => panic!("no {what}: {error}, but\n{}", others.join("\n")),
            }
        }
    }

    /// What has come so far, and was not asked for.
    fn so_far(&self) -> String {
        self.1.borrow().iter().cloned().chain(self.0.try_iter()).map(|line| line + "\n").collect()
    }

    fn rest(&self) -> String {
        self.1.take().into_iter().chain(self.0.iter()).map(|line| line + "\n").collect()
    }
}

/// The program that serves a configuration, `config.toml` of a folder.
pub struct Service {
    child: Child,
    results: Lines,
    journal: Lines,
    config: PathBuf,
}

impl Service {
    pub fn start(folder: &Path, config: &str) -> Self {
        Self::with(folder, config, &[])
    }

    /// With variables of the environment.
    pub fn with(folder: &Path, config: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = command(folder);
        command.envs(variables.iter().copied());
        Self::of(command, folder, config)
    }

    /// What a line of a shell becomes, which has the command as `"$@"`.
    pub fn by_shell(folder: &Path, config: &str, line: &str) -> Self {
        let direct = command(folder);
        let mut shell = Command::new("/bin/sh");
        shell.current_dir(folder).args(["-c", line, "sh"]).arg(direct.get_program());
        for (name, _) in direct.get_envs().filter(|(_, value)| value.is_none()) {
            shell.env_remove(name);
        }
        Self::of(shell, folder, config)
    }

    /// One that reads its configuration again when that changes.
    pub fn watching(folder: &Path, config: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = command(folder);
        command.envs(variables.iter().copied()).args(["serve", "--watch"]);
        Self::of_file(command, folder, config)
    }

    /// Its files can have so many bytes, and no more, as on a full disk.
    pub fn with_small_files(folder: &Path, config: &str, bytes: u64) -> Self {
        let mut command = command(folder);
        let limit = move || {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            // SAFETY: it is a system call, which takes what is here.
            let is_set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
            if is_set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: it allocates nothing, and takes no lock.
        unsafe { command.pre_exec(limit) };
        Self::of(command, folder, config)
    }

    fn of(mut command: Command, folder: &Path, config: &str) -> Self {
        command.arg("serve");
        Self::of_file(command, folder, config)
    }

    /// The command as it is before the name of the file.
    fn of_file(mut command: Command, folder: &Path, config: &str) -> Self {
        let file = folder.join("config.toml");
        std::fs::write(&file, config).unwrap();
        command.arg("config.toml").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (results, journal) = (Lines::of(child.stdout.take().unwrap()), Lines::of(child.stderr.take().unwrap()));
        Service { child, results, journal, config: file }
    }

    /// A line of stderr that contains the text.
    pub fn said(&self, text: &str) -> String {
        self.journal.until(text, |line| line.contains(text))
    }

    /// The next JSON line of a source on stdout.
    pub fn result(&self, source: &str) -> serde_json::Value {
        let mark = format!("\"{source}\"");
        let line = self.results.until(source, |line| line.contains(&mark));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// What comes from elsewhere because of it.
    #[track_caller]
    pub fn causes<T>(&self, what: &str, from: &Receiver<T>) -> T {
        from.recv_timeout(TIMEOUT).unwrap_or_else(|error| panic!("{what}: {error}, but\n{}", self.journal.so_far()))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A folder or a file of /proc about it.
    pub fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.id()))
    }

    pub fn reload(&self, config: &str) {
        self.write(config);
        self.signal(libc::SIGHUP);
    }

    pub fn write(&self, config: &str) {
        std::fs::write(&self.config, config).unwrap();
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: takes no memory; the child is waited for by its owner only, so the number is still its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Ends it as systemd does, and returns all that was still to be read of stderr.
    pub fn end(self) -> (ExitStatus, String) {
        self.signal(libc::SIGTERM);
        self.ended()
    }

    /// The same of one that ends by itself.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        (status, self.journal.rest())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address at which nothing listens, until the service does.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// The status and the body of an answer over HTTP.
pub fn ask(address: &str, method: &str, path: &str, token: &str, body: &str) -> (u16, Vec<u8>) {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(TIMEOUT)).unwrap();
    let length = body.len();
    write!(
        connection,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
    (std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap(), answer.split_off(head + 4))
}

/// An RTSP server of the sample clip. Dropped, it ends at once, as a camera that loses its power.
pub struct RtspServer {
    child: Child,
    pub port: u16,
}

impl RtspServer {
    /// With port 0 it takes a free one.
    pub fn start(port: u16, names: &[&str]) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(path("gst-trt/tests/common/rtsp_server.py")).arg(port.to_string()).arg(super::sample()).args(names);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().expect("it prints its port: is gir1.2-gst-rtsp-server-1.0 installed?");
        RtspServer { child, port }
    }
}

impl Drop for RtspServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
