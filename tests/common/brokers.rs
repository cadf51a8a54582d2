// SPDX-License-Identifier: MPL-2.0
//! Servers of Debian's packages, each on a free port, in a folder of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::port::free_port;
use super::wait::wait_until;

/// After this a server hangs.
pub const LIMIT: Duration = Duration::from_secs(30);
/// One in Erlang needs seconds of a processor until it listens.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Whether a program is there; a word that it is missing, if not.
pub fn is_installed(program: &str) -> bool {
    let folders = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    let is_there = folders.iter().any(|folder| Path::new(folder).join(program).exists());
    if !is_there {
        println!("SKIP: {program} is not installed.");
    }
    is_there
}

/// A program in a folder that users may not have in their PATH.
fn command(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.env("PATH", format!("{path}:/usr/sbin:/usr/local/sbin")).stdin(Stdio::null());
    command
}

/// Tries until the condition holds.
#[track_caller]
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    wait_until(what, LIMIT, is_so);
}

/// A server that ends with the test.
pub struct Server {
    command: Box<dyn Fn() -> Command + Send>,
    child: Option<Child>,
    /// What the server needs besides, as long as it is there.
    helper: Option<Child>,
    pub port: u16,
    pub folder: PathBuf,
}

impl Server {
    fn new(folder: &Path, port: u16, command: impl Fn() -> Command + Send + 'static) -> Self {
        Self::with_helper(None, folder, port, command)
    }

    fn with_helper(
        helper: Option<Child>,
        folder: &Path,
        port: u16,
        command: impl Fn() -> Command + Send + 'static,
    ) -> Self {
        let mut server = Server { command: Box::new(command), child: None, helper, port, folder: folder.into() };
        server.start();
        server
    }

    pub fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut command = (self.command)();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let child = self.child.as_mut().unwrap();
        let (port, folder) = (self.port, &self.folder);
        wait_until("the server listens", START_LIMIT, || {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("{status}: {}", std::fs::read_to_string(folder.join("log")).unwrap_or_default());
            }
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
    }

    /// Tells it to stop.
    pub fn stop(&mut self) {
        if let Some(child) = &self.child {
            // SAFETY: a signal to a process of ours that has not been waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        }
        if let Some(mut child) = self.child.take() {
            child.wait().unwrap();
        }
    }

    /// Without a warning, as a power cut does it.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            child.wait().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if let Some(mut helper) = self.helper.take() {
            let _ = helper.kill();
            let _ = helper.wait();
        }
    }
}

/// Certificates: `ca.pem`, `server.pem` for localhost, `client.pem` for the user client, and their keys.
pub fn make_certificates(folder: &Path) {
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1").unwrap();
    let openssl = |arguments: &str| {
        let output = command("openssl").args(arguments.split(' ')).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=tests -keyout ca.key -out ca.pem",
    );
    for name in ["server", "client"] {
        openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile names -out {name}.pem"
        ));
    }
}

/// A certificate and its key as `openssl req -x509` makes them for a server called localhost: `NAME.pem`, `NAME.key`.
pub fn make_own_certificate(folder: &Path, name: &str) {
    let mut openssl = command("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout"]);
    openssl.arg(format!("{name}.key")).arg("-out").arg(format!("{name}.pem")).current_dir(folder);
    assert!(openssl.output().unwrap().status.success());
}

/// mosquitto with these lines in its configuration besides the port. It saves what it has at each change, so that it
/// can be killed.
pub fn mosquitto(folder: &Path, lines: &str) -> Server {
    mosquitto_that_saves(folder, &format!("{lines}\nautosave_on_changes true\nautosave_interval 1"))
}

/// The same, which saves what it has when it is told to stop.
pub fn mosquitto_that_saves(folder: &Path, lines: &str) -> Server {
    let port = free_port();
    let location = folder.display();
    let text = format!(
        "listener {port}\n{lines}\npersistence true\npersistence_location {location}/\n\
         max_queued_messages 0\nmax_queued_bytes 0\nuser root\n"
    );
    let file = folder.join("mosquitto.conf");
    std::fs::write(&file, text).unwrap();
    Server::new(folder, port, move || {
        let mut server = command("mosquitto");
        server.arg("-c").arg(&file);
        server
    })
}

pub fn redis(folder: &Path, arguments: &str) -> Server {
    let port = free_port();
    let (folder_there, arguments) = (folder.to_path_buf(), arguments.to_string());
    Server::new(folder, port, move || {
        let mut server = command("redis-server");
        server.current_dir(&folder_there).args(arguments.split_whitespace());
        server.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        if !arguments.contains("--tls-port") {
            server.args(["--port", &port.to_string()]);
        } else {
            server.args(["--port", "0", "--tls-port", &port.to_string()]);
        }
        server
    })
}

pub fn nats(folder: &Path, arguments: &str) -> Server {
    let port = free_port();
    let (folder_there, arguments) = (folder.to_path_buf(), arguments.to_string());
    Server::new(folder, port, move || {
        let mut server = command("nats-server");
        server
            .current_dir(&folder_there)
            .args(["-a", "127.0.0.1", "-p", &port.to_string()])
            .args(arguments.split_whitespace());
        server
    })
}

/// RabbitMQ with these lines in its configuration besides the port. Not by the program that Debian has in the PATH: that one becomes
/// another user, who has no folders here.
pub fn rabbitmq(folder: &Path, lines: &str) -> Server {
    let (port, names, distribution) = (free_port(), free_port(), free_port());
    let file = folder.join("rabbitmq.conf");
    std::fs::write(&file, format!("listeners.tcp.default = 127.0.0.1:{port}\n{lines}\n")).unwrap();
    std::fs::write(folder.join("plugins"), "[].").unwrap();
    // Two parts of the server would make it at the same time.
    let cookie = folder.join(".erlang.cookie");
    std::fs::write(&cookie, "TESTS").unwrap();
    std::fs::set_permissions(&cookie, std::fs::Permissions::from_mode(0o600)).unwrap();
    // Erlang's server of names: RabbitMQ would start one that outlives it.
    let mut helper = command("epmd");
    helper.args(["-port", &names.to_string(), "-address", "127.0.0.1"]).stdout(Stdio::null()).stderr(Stdio::null());
    let helper = Some(helper.spawn().unwrap());
    until("the server of names listens", || TcpStream::connect(("127.0.0.1", names)).is_ok());
    let folder_there = folder.to_path_buf();
    Server::with_helper(helper, folder, port, move || {
        let mut server = command(RABBITMQ);
        let settings = [
            ("CONFIG_FILE", file.clone()),
            ("MNESIA_BASE", folder_there.clone()),
            ("LOG_BASE", folder_there.clone()),
            ("PID_FILE", folder_there.join("pid")),
            ("ENABLED_PLUGINS_FILE", folder_there.join("plugins")),
            ("NODENAME", format!("tests{port}@localhost").into()),
            ("DIST_PORT", distribution.to_string().into()),
        ];
        server.envs(settings.map(|(name, value)| (format!("RABBITMQ_{name}"), value)));
        // So that the script becomes the server.
        server.env("RUNNING_UNDER_SYSTEMD", "1").env("HOME", &folder_there);
        server.env("ERL_EPMD_PORT", names.to_string()).env("ERL_EPMD_ADDRESS", "127.0.0.1");
        server
    })
}

/// Debian's, without what becomes another user.
pub const RABBITMQ: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// The messages of a queue of RabbitMQ, which is made if it is not there.
pub fn rabbit_queue(port: u16, queue: &str, more: &[&str]) -> Printed {
    let printed = Printed::of_script("common/rabbit_queue.py", &[&[&port.to_string(), queue], more].concat());
    assert_eq!(printed.next(), "ready");
    printed
}

/// Lines that a program prints, while it runs.
pub struct Printed {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Printed {
    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Printed { child, lines }
    }

    /// Of a script in Python with the system's packages, from tests on.
    pub fn of_script(script: &str, arguments: &[&str]) -> Self {
        let mut python = Command::new("/usr/bin/python3");
        python.arg(format!("{}/tests/{script}", env!("CARGO_MANIFEST_DIR"))).args(arguments).stdin(Stdio::null());
        Printed::of(python)
    }

    /// The next line.
    #[track_caller]
    pub fn next(&self) -> String {
        self.lines.recv_timeout(LIMIT).expect("another line")
    }

    pub fn take(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next()).collect()
    }

    /// What has come, without waiting.
    pub fn now(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }
}

impl Drop for Printed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A subscriber whose session mosquitto keeps, from before the first message on.
pub fn mosquitto_sub(port: u16, topic: &str, more: &[&str]) -> Printed {
    let subscribe = |last: &[&str]| {
        let mut sub = command("mosquitto_sub");
        let port = port.to_string();
        sub.args(["-h", "localhost", "-p", &port, "-t", topic, "-c", "-q", "2", "-i", &format!("sub-{topic}")])
            .args(more)
            .args(last);
        sub
    };
    until("the subscription", || subscribe(&["-E"]).status().unwrap().success());
    Printed::of(subscribe(&[]))
}

pub fn redis_cli(port: u16, arguments: &[&str]) -> String {
    let output = command("redis-cli").args(["-p", &port.to_string(), "--json"]).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

pub fn redis_subscribe(port: u16, channel: &str) -> Printed {
    let mut cli = command("redis-cli");
    cli.args(["-p", &port.to_string(), "SUBSCRIBE", channel]);
    let printed = Printed::of(cli);
    assert_eq!(printed.take(3)[0], "subscribe");
    printed
}

/// A subscriber that speaks NATS' own words.
pub struct NatsSubscriber(BufReader<TcpStream>);

impl NatsSubscriber {
    pub fn new(port: u16, subject: &str, hello: &str) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        write!(stream, "CONNECT {{\"verbose\":false{hello}}}\r\nSUB {subject} 1\r\nPING\r\n").unwrap();
        let mut subscriber = NatsSubscriber(BufReader::new(stream));
        while subscriber.line() != "PONG" {}
        subscriber
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the server has closed the connection");
        line.trim_end().to_string()
    }

    pub fn next(&mut self) -> String {
        loop {
            let line = self.line();
            if let Some(size) = line.strip_prefix("MSG ").and_then(|rest| rest.rsplit(' ').next()) {
                let mut bytes = vec![0; size.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes).unwrap();
                return String::from_utf8(bytes).unwrap().trim_end().to_string();
            }
        }
    }
}

/// A web server's view of a request.
#[derive(Clone, Debug)]
pub struct WebRequest {
    /// The first line and the headers.
    pub head: String,
    pub body: String,
}

/// How a web server answers.
#[derive(Clone, Copy, Debug)]
pub enum WebAnswer {
    Status(u16),
    /// Nothing, as long as the client waits.
    Hang,
    /// The connection is closed.
    Close,
}

/// A web server that answers with these in turn, the last one forever; and the requests.
pub fn web_server(answers: &[WebAnswer]) -> (u16, mpsc::Receiver<WebRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, received) = mpsc::channel();
    let mut answers: Vec<_> = answers.iter().rev().copied().collect();
    std::thread::spawn(move || {
        let mut hanging = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            while let Some(request) = read_request(&mut reader) {
                if requests.send(request).is_err() {
                    return;
                }
                let answer = if answers.len() > 1 { answers.pop().unwrap() } else { answers[0] };
                match answer {
                    WebAnswer::Status(status) => {
                        let text = format!("HTTP/1.1 {status} Said\r\nContent-Length: 2\r\n\r\nok");
                        reader.get_mut().write_all(text.as_bytes()).unwrap();
                    }
                    WebAnswer::Close => break,
                    WebAnswer::Hang => {
                        hanging.push(reader);
                        break;
                    }
                }
            }
        }
    });
    (port, received)
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<WebRequest> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_string));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some(WebRequest { head, body: String::from_utf8(body).unwrap() })
}
