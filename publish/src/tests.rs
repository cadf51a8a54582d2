// SPDX-License-Identifier: MPL-2.0
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use proptest::prelude::*;

use gsttrt_core::redact::redacted;

use super::address::{Address, Secret};
use super::destination::{Destination, Undelivered};
use super::destinations::{self, Opened};
use super::options::{DropPolicy, PublishOptions};
use super::publisher::{Notice, Publisher};
use super::queue::{Next, PublishQueue};

#[allow(dead_code)] // destinations use it, of which some may be left out
#[path = "../../core/tests/common/wait.rs"]
pub(super) mod wait;

#[path = "../../core/tests/common/cases.rs"]
mod cases;
#[path = "../../core/tests/common/scratch.rs"]
mod scratch;
use cases::cases;
pub(super) use scratch::scratch;

const SCHEMES: [&str; 4] = ["mqtt", "http", "nats", "redis"];
const LONG: Duration = Duration::from_secs(30);

// ------------------------------------------------------------------------------------------- addresses

#[test]
fn addresses_have_parts() {
    let parse = |text| Address::parse(text, &SCHEMES).unwrap();
    let all = parse("MQTT://me:p%40ss@[::1]:1884/a/b%20c?qos=2&will-message=a%26b");
    assert_eq!(
        (all.scheme.as_str(), all.user.as_deref(), all.host.as_str(), all.port),
        ("mqtt", Some("me"), "::1", Some(1884))
    );
    assert_eq!((all.password.as_ref().unwrap().reveal(), all.path.as_str()), ("p@ss", "a/b c"));
    let parameters = all.parameters(&["qos", "will-message"]).unwrap();
    assert_eq!((parameters.number("qos", 0..=2, 1).unwrap(), parameters.text("will-message")), (2, Some("a&b")));
    assert_eq!(all.shown(), "mqtt://[::1]:1884/a/b c");
    for (text, scheme, path) in [
        ("-", "-", ""),
        ("out.jsonl", "file", "out.jsonl"),
        ("a:b.jsonl", "file", "a:b.jsonl"),
        ("/a/b?c", "file", "/a/b?c"),
        ("file:/a", "file", "/a"),
        ("file:///a%20b", "file", "/a b"),
        ("file:a", "file", "a"),
        ("unix:/run/x", "unix", "/run/x"),
        ("nats://host/a.b", "nats", "a.b"),
    ] {
        let address = parse(text);
        assert_eq!((address.scheme.as_str(), address.path.as_str()), (scheme, path), "{text}");
    }
    assert_eq!(parse("http://host/a%2Fb?x=1#y").target.reveal(), "/a%2Fb?x=1#y");
    assert_eq!(parse("mqtt://:pass@host/t").user, None);
    assert_eq!((parse("mqtt://host//lead").path, parse("mqtt://host/a//b/").path), ("/lead".into(), "a//b/".into()));
}

#[test]
fn what_is_no_address_says_why() {
    for (text, part) in [
        ("", "location is not set"),
        ("mqtt:host/topic", "two slashes"),
        ("coap://host/topic", "mqtt://, http://, nats://"),
        ("a b://host", "no known word"),
        ("mqtt://", "no host"),
        ("mqtt:///topic", "no host"),
        ("mqtt://ho st/topic", "no host"),
        ("mqtt://host:0/topic", "port"),
        ("mqtt://host:65536/topic", "port"),
        ("mqtt://host:abc/topic", "port"),
        ("mqtt://::1/topic", "several colons"),
        ("mqtt://[::1/topic", "bracket"),
        ("mqtt://[abc]/topic", "IPv6"),
        ("mqtt://[::1]x/topic", "port"),
        ("mqtt://host/a%2", "%"),
        ("mqtt://host/a%zz", "%"),
        ("mqtt://host/%FF", "%"),
        ("mqtt://host/a\nb", "control characters"),
        ("mqtt://me:pa/ss@host/topic", "password-file"),
        ("mqtt://me:12/ss@host/topic", "password-file"),
        ("mqtt://me:a@b/ss@host/topic", "password-file"),
        ("nats://pa/ss@host/topic", "password-file"),
        ("mqtt://host/a/#", "%23"),
        ("mqtt://***@host/topic", "*** stands for"),
        ("file:", "no path"),
        ("file://host/a", "names a host"),
        ("unix://", "no path"),
    ] {
        let error = Address::parse(text, &SCHEMES).unwrap_err().message();
        assert!(error.contains(part), "{text}: {error}");
        assert!(!error.contains("ss@host"), "{error}");
    }
    let parameters =
        |text| Address::parse(text, &SCHEMES).unwrap().parameters(&["qos"]).map(drop).unwrap_err().message();
    assert!(parameters("mqtt://host/t?qso=1").contains("there is no parameter qso. mqtt:// has qos."));
    assert!(parameters("mqtt://host/t?qos=1&qos=2").contains("qos is there twice"));
    assert!(!parameters("mqtt://host/t?Secret%40=1").contains("Secret"));
    let address = Address::parse("mqtt://host/t?qos=3", &SCHEMES).unwrap();
    let error = address.parameters(&["qos"]).unwrap().number("qos", 0..=2, 1).unwrap_err().message();
    assert!(error.contains("a number from 0 to 2"), "{error}");
}

/// What a user may see of an address, whether it can be used or not.
fn seen(location: &str, cause: &str) -> Vec<String> {
    let options = PublishOptions { location: location.into(), ..PublishOptions::default() };
    let mut seen = vec![redacted(location), format!("{options:?}")];
    if let Ok(address) = Address::parse(location, &SCHEMES) {
        seen.extend([address.shown(), format!("{address:?}")]);
    }
    match destinations::open(&options) {
        Err(error) => seen.extend([error.message(), format!("{error:?}")]),
        Ok(Opened { destination, shown, secrets }) => {
            drop(destination);
            // A server that repeats what it was sent.
            let destination = Box::new(Fake { steps: [Step::Say(cause.into())].into(), heard: Arc::default() });
            let (notices, told) = mpsc::channel();
            let opened = Opened { destination, shown, secrets };
            let publisher =
                Publisher::start(opened, &quick(), u32::to_string, move |notice| drop(notices.send(notice))).unwrap();
            publisher.push(1);
            seen.push(format!("{:?}", told.recv_timeout(LONG).unwrap()));
        }
    }
    seen
}

/// Webhooks have their secret in the path, and a server may repeat any header.
#[cfg(feature = "http")]
#[test]
fn secrets_of_webhooks_are_known() {
    let opened = |location: &str, password: Option<&str>| {
        let password = password.map(Secret::new);
        destinations::open(&PublishOptions { location: location.into(), password, ..PublishOptions::default() })
    };
    let hook = opened("http://me:secret@host/hook/9fGh27KqLw83nBvX/x", None).unwrap();
    let secrets: Vec<&str> = hook.secrets.iter().map(Secret::reveal).collect();
    assert_eq!(hook.shown, "http://host/hook/***/x");
    assert_eq!(secrets, ["9fGh27KqLw83nBvX", "bWU6c2VjcmV0", "secret", "me"]);
    let Err(error) = opened("http://host/hook", Some("pässword")) else { panic!("a header holds ASCII alone") };
    let said = error.message();
    assert!(said.starts_with("The token for http://host/hook cannot be sent by HTTP: it has characters"), "{said}");
    assert!(said.contains("password-file") && !said.contains("ssword."), "{said}");
}

/// Texts of a pattern, which is read once for all of them.
fn text(pattern: &str) -> prop::string::RegexGeneratorStrategy<String> {
    prop::string::string_regex(pattern).unwrap()
}

proptest! {
    #![proptest_config(cases(10_000))]
    #[test]
    fn no_character_of_a_secret_is_told(
        // Each part of it can be found again.
        gaps in prop::collection::vec(text("[ -~äß]{0,3}"), 1..4),
        escaped in any::<bool>(),
        scheme in text("mqtt|http|redis|nats|ws"),
        name in text("password|token|key|user|auth"),
        form in 0..5,
    ) {
        let secret = format!("Zq9{}Zq9", gaps.join("Zq9"));
        let escape = |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        let written = if escaped { secret.bytes().map(escape).collect() } else { secret.clone() };
        let location = match form {
            0 => format!("{scheme}://me:{written}@127.0.0.1:1/t"),
            1 => format!("{scheme}://{written}:{written}@127.0.0.1:1/t"),
            2 => format!("{scheme}://:{written}@127.0.0.1:1/t"),
            3 => format!("{scheme}://127.0.0.1:1/t?{name}={written}"),
            _ => format!("{scheme}://127.0.0.1:1/user={written}&password={written}&channel=1"),
        };
        // A server repeats what it was sent: what the address means, if it means the secret.
        let is_whole = escaped || !secret.contains(['%', '&', '#', '=', ':']);
        let said = if is_whole && form < 4 { format!("no such user as {secret} here") } else { "no".into() };
        for text in seen(&location, &said) {
            prop_assert!(!text.contains("Zq9"), "{location}: {text}");
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_an_address_or_an_error(text in ".{0,60}", scheme in 0..SCHEMES.len()) {
        for text in [text.clone(), format!("{}://{text}", SCHEMES[scheme]), format!("file:{text}")] {
            redacted(&text);
            if let Ok(address) = Address::parse(&text, &SCHEMES) {
                address.shown();
            }
        }
    }

    #[test]
    fn any_location_opens_or_fails(text in "[a-z:/?@%&=.0-9\\[\\]-]{0,40}", scheme in "mqtt|mqtts|redis|rediss|http|https|nats|ws|amqp|kafka") {
        let options = PublishOptions { location: format!("{scheme}://{text}").into(), ..PublishOptions::default() };
        if let Err(error) = destinations::open(&options) {
            prop_assert!(error.message().ends_with('.'));
        }
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let folder = scratch("publish-open");
    let file = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        Some(folder.join(name))
    };
    let open = |location: &str, change: &dyn Fn(&mut PublishOptions)| {
        let mut options = PublishOptions { location: location.into(), ..PublishOptions::default() };
        change(&mut options);
        match destinations::open(&options) {
            Ok(opened) => opened.shown,
            Err(error) => error.message(),
        }
    };
    let plain = |location: &str| open(location, &|_| {});
    for (scheme, feature, is_on) in [
        ("mqtt", "mqtt", cfg!(feature = "mqtt")),
        ("redis", "redis", cfg!(feature = "redis")),
        ("http", "http", cfg!(feature = "http")),
        ("nats", "nats", cfg!(feature = "nats")),
        ("tls", "nats", cfg!(feature = "nats")),
        ("amqp", "amqp", cfg!(feature = "amqp")),
        ("amqps", "amqp", cfg!(feature = "amqp")),
    ] {
        let said = plain(&format!("{scheme}://host/t"));
        let expected = if is_on {
            format!("{scheme}://host/t")
        } else {
            format!("This build of the plugin cannot send to {scheme}://. Build it with the cargo feature {feature}.")
        };
        assert_eq!(said, expected);
        // What this build has not is not offered in place of a word that nobody knows.
        let said = plain("mqt://host/t");
        assert_eq!(said.contains(&format!(" {scheme}://")), is_on, "{said}");
    }
    let said = open("file:/tmp/x", &|options| options.ca_file = file("ca", ""));
    assert!(said.starts_with("ca-file is set, but /tmp/x is not encrypted"), "{said}");
    let said = open("-", &|options| options.password_file = file("p", ""));
    assert!(said.starts_with("password-file is set, but standard output has no password"), "{said}");
    let said = open("unix:/x", &|options| options.key_file = file("k", ""));
    assert!(said.contains("belong together"), "{said}");
    assert!(plain("sei:").contains("sei = true in [rtsp]"), "{}", plain("sei:"));
    if cfg!(feature = "mqtt") {
        for (location, part) in [
            ("mqtt://host", "no topic"),
            ("mqtt://host/", "no topic"),
            ("mqtt://host/a/+/b", "wildcards"),
            ("mqtt://host/a/%23", "wildcards"),
            ("mqtt://host/t?clean-session=false", "no client-id"),
            ("mqtt://host/t?clean-session=maybe", "true or false"),
            ("mqtt://host/t?qos=9", "from 0 to 2"),
            ("mqtt://host/t?keep-alive=0", "from 1 to 65535"),
            ("mqtt://host/t?will-topic=%23", "no topic"),
            ("mqtt://:secret@host/t", "no user"),
            ("mqtt://host/t?nothing=1", "client-id, clean-session"),
        ] {
            let said = plain(location);
            assert!(said.contains(part), "{location}: {said}");
        }
        let said = open("mqtt://host/t", &|options| options.ca_file = file("ca", ""));
        assert!(said.contains("mqtts://"), "{said}");
        for (name, part) in [("none", "Cannot read the ca-file"), ("ca", "There is no certificate in the ca-file")] {
            let said = open("mqtts://host/t", &|options| options.ca_file = Some(folder.join(name)));
            assert!(said.contains(part), "{said}");
        }
        let said = open("mqtt://me@host/t", &|options| options.password_file = Some(folder.join("none")));
        assert!(said.starts_with("Cannot read the password-file"), "{said}");
        // A pipe would be waited for, and a device may never end.
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for (path, says) in [(pipe, "it is a pipe"), ("/dev/zero".into(), "it is a device")] {
            let said = open("mqtts://host/t", &|options| options.ca_file = Some(path.clone()));
            assert!(said.starts_with("Cannot read the ca-file") && said.contains(says), "{said}");
            let said = open("mqtt://me@host/t", &|options| options.password_file = Some(path.clone()));
            assert!(said.starts_with("Cannot read the password-file") && said.contains(says), "{said}");
        }
        let said = open("mqtt://me:x@host/t", &|options| options.password_file = file("p", "x"));
        assert!(said.contains("each of location and password-file. Leave one of them out"), "{said}");
        let said = open("mqtt://me@host/t", &|options| options.password = Some("x".into()));
        assert_eq!(said, "mqtt://host/t");
    }
    if cfg!(feature = "redis") {
        for (location, part) in [
            ("redis://host", "no name"),
            ("redis://host/a?type=list", "neither stream nor channel"),
            ("redis://host/a?maxlen=9223372036854775808", "from 0 to 9223372036854775807"),
            ("redis://host/a?db=x", "db has to be a number"),
        ] {
            let said = plain(location);
            assert!(said.contains(part), "{location}: {said}");
        }
    }
    if cfg!(feature = "amqp") {
        for (location, part) in [
            ("amqp://host".to_string(), "neither a queue nor an exchange"),
            ("amqp://:secret@host/q".into(), "no user"),
            ("amqp://host/q?persistent=maybe".into(), "true or false"),
            ("amqp://host/q?heartbeat=x".into(), "from 0 to 65535"),
            (format!("amqp://host/{}", "q".repeat(256)), "255 bytes"),
        ] {
            let said = plain(&location);
            assert!(said.contains(part), "{location}: {said}");
        }
    }
    if cfg!(feature = "nats") {
        for location in ["nats://host", "nats://host/a..b", "nats://host/a.*", "nats://host/a%20b"] {
            let said = plain(location);
            assert!(said.contains("no subject"), "{location}: {said}");
        }
    }
    if cfg!(feature = "http") {
        let said = plain("http://host/a b");
        assert!(said.contains("%20"), "{said}");
    }
}

// ------------------------------------------------------------------------------------------- the queue

fn taken(queue: &PublishQueue<u32>, limit: usize) -> Vec<u32> {
    match queue.take(limit, Duration::ZERO) {
        Next::Items(items) => items,
        _ => Vec::new(),
    }
}

#[test]
fn a_full_queue_drops_by_its_policy() {
    for (policy, sent, left) in [(DropPolicy::Oldest, [2, 3], [7, 9]), (DropPolicy::Newest, [0, 1], [2, 3])] {
        let queue = PublishQueue::new(4, policy);
        let first: Vec<bool> = (0..4).map(|item| queue.push(item)).collect();
        assert_eq!(first, [false; 4]);
        assert_eq!(queue.counts(), (4, 0));
        let told: Vec<bool> = (4..6).map(|item| queue.push(item)).collect();
        assert_eq!(told, [true, false], "it is told once");
        assert_eq!(taken(&queue, 9), sent, "half of the room at most");
        assert_eq!(queue.counts(), (4, 2), "what is being sent waits still");
        queue.push(7);
        assert_eq!(queue.counts(), (4, 3), "there is no room for it, or another goes");
        queue.done(1);
        for item in 9..11 {
            queue.push(item);
        }
        queue.done(1);
        assert_eq!((queue.counts(), taken(&queue, 9)), ((3, 4), left.to_vec()));
    }
    // Also while as many as there may be are sent at once, it is the newest that stay.
    let queue = PublishQueue::new(2, DropPolicy::Oldest);
    for item in 0..2 {
        queue.push(item);
    }
    assert_eq!(taken(&queue, 9), [0]);
    for item in 2..9 {
        queue.push(item);
    }
    queue.done(1);
    assert_eq!(taken(&queue, 9), [8]);
}

#[test]
fn blocked_ones_wait_for_room() {
    let queue = PublishQueue::new(2, DropPolicy::Block);
    std::thread::scope(|scope| {
        let pushing = scope.spawn(|| (0..100).for_each(|item| assert!(!queue.push(item), "nothing is dropped")));
        let mut all = Vec::new();
        while all.len() < 100 {
            let Next::Items(items) = queue.take(9, LONG) else { panic!() };
            assert!(items.len() <= 2);
            queue.done(items.len());
            all.extend(items);
        }
        pushing.join().unwrap();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    });
    assert_eq!(queue.counts(), (0, 0));
    // While a stream is flushed, and at the end, no thread waits.
    (0..2).for_each(|item| assert!(!queue.push(item)));
    std::thread::scope(|scope| {
        let (begun, has_begun) = mpsc::channel();
        let queue = &queue;
        let pushing = scope.spawn(move || {
            begun.send(()).unwrap();
            queue.push(2)
        });
        has_begun.recv().unwrap();
        queue.set_open(true);
        assert!(pushing.join().unwrap());
    });
    assert!(!queue.wait_until_empty(LONG), "it is open: this does not wait");
    queue.set_open(false);
    assert!(!queue.wait_until_empty(Duration::from_millis(1)));
}

// ------------------------------------------------------------------------------------------- the thread

/// What a destination does next.
#[derive(Clone, Debug)]
enum Step {
    /// Breaks, with a text of the server.
    Say(String),
    /// Takes so many messages, then breaks.
    Break(usize),
    /// Refuses one behind so many.
    Refuse(usize),
    NoConnection,
}

#[derive(Default)]
struct Heard {
    messages: Mutex<Vec<String>>,
    changed: Condvar,
    connections: AtomicUsize,
    is_closed: AtomicBool,
}

struct Fake {
    steps: VecDeque<Step>,
    heard: Arc<Heard>,
}

impl Destination for Fake {
    fn connect(&mut self) -> io::Result<()> {
        if let Some(Step::NoConnection) = self.steps.front() {
            self.steps.pop_front();
            return Err(io::Error::other("nobody at home, secret"));
        }
        self.heard.connections.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> Result<(), Undelivered> {
        let take = |count: usize| {
            self.heard.messages.lock().unwrap().extend_from_slice(&messages[..count]);
            self.heard.changed.notify_all();
        };
        match self.steps.pop_front() {
            Some(Step::Say(text)) => Err(io::Error::other(text).into()),
            Some(Step::Break(count)) => {
                let count = count.min(messages.len());
                take(count);
                Err(Undelivered::after(count, io::Error::other("it broke, secret")))
            }
            Some(Step::Refuse(count)) => {
                let count = count.min(messages.len() - 1);
                take(count);
                Err(Undelivered::refused(count, 1, io::Error::other("too bad")))
            }
            other => {
                self.steps.extend(other);
                take(messages.len());
                Ok(())
            }
        }
    }

    fn close(&mut self) {
        self.heard.is_closed.store(true, Ordering::SeqCst);
    }
}

fn publisher(steps: &[Step], options: &PublishOptions) -> (Publisher<u32>, Arc<Heard>, mpsc::Receiver<Notice>) {
    let heard = Arc::new(Heard::default());
    let destination = Box::new(Fake { steps: steps.iter().cloned().collect(), heard: heard.clone() });
    let opened = Opened { destination, shown: "fake://".into(), secrets: vec![Secret::new("secret")] };
    let (notices, told) = mpsc::channel();
    let publisher =
        Publisher::start(opened, options, u32::to_string, move |notice| drop(notices.send(notice))).unwrap();
    (publisher, heard, told)
}

fn quick() -> PublishOptions {
    PublishOptions { max_reconnect_interval: Duration::from_millis(1), max_batch: 4, ..PublishOptions::default() }
}

#[test]
fn messages_arrive_in_order_through_failures() {
    let steps = [
        Step::NoConnection,
        Step::Break(0),
        Step::NoConnection,
        Step::Break(1),
        Step::Break(3),
        Step::Refuse(0),
        Step::Break(2),
        Step::NoConnection,
    ];
    let (publisher, heard, told) = publisher(&steps, &quick());
    (0..50).for_each(|number| assert!(!publisher.push(number)));
    assert!(publisher.flush(LONG));
    let counts = publisher.close(LONG);
    let messages: Vec<u32> = heard.messages.lock().unwrap().iter().map(|text| text.parse().unwrap()).collect();
    assert!(messages.is_sorted_by(|a, b| a < b), "{messages:?}");
    assert_eq!((messages.len() as u64, counts.published, counts.rejected, counts.dropped), (49, 49, 1, 0));
    assert_eq!(counts.connections, heard.connections.load(Ordering::SeqCst) as u64);
    assert!(heard.is_closed.load(Ordering::SeqCst));
    let told: Vec<_> = told.try_iter().collect();
    let count = |is_it: fn(&Notice) -> bool| told.iter().filter(|notice| is_it(notice)).count();
    let [failing, back] = [count(|n| matches!(n, Notice::Failing(_))), count(|n| matches!(n, Notice::Back(_)))];
    assert!(failing == back && (1..=4).contains(&failing), "{told:?}");
    assert_eq!(count(|n| matches!(n, Notice::Refused(_))), 1);
    let Notice::Failing(first) = &told[0] else { panic!("{told:?}") };
    assert!(
        first.message().starts_with("Cannot connect to fake://: nobody at home, ***. It is tried again"),
        "{first}"
    );
}

/// What was delivered before it broke is no sign that it works again.
#[test]
fn a_connection_is_back_once_something_has_gone_over_it() {
    let (publisher, _, told) = publisher(&[Step::Break(1), Step::NoConnection], &quick());
    (0..20).for_each(|number| assert!(!publisher.push(number)));
    assert!(publisher.flush(LONG));
    let told: Vec<_> = told.try_iter().collect();
    assert!(matches!(told[..], [Notice::Failing(_), Notice::Back(_)]), "{told:?}");
    publisher.close(LONG);
}

#[test]
fn what_cannot_be_sent_at_the_end_is_counted() {
    let (publisher, _, told) = publisher(&vec![Step::NoConnection; 10_000], &quick());
    (0..5).for_each(|number| assert!(!publisher.push(number)));
    assert!(matches!(told.recv_timeout(LONG), Ok(Notice::Failing(_))));
    assert!(!publisher.flush(Duration::from_millis(20)));
    let counts = publisher.close(LONG);
    assert_eq!((counts.published, counts.dropped, counts.queued), (0, 5, 0));
    assert_eq!(told.try_iter().count(), 0, "it is told once");
}

#[test]
fn only_so_many_wait() {
    let options = PublishOptions { max_queued: 10, ..quick() };
    let (publisher, ..) = publisher(&vec![Step::NoConnection; 100_000], &options);
    let told = (0..100).filter(|&number| publisher.push(number)).count();
    let counts = publisher.counts();
    assert_eq!((told, counts.queued, counts.dropped, counts.is_connected), (1, 10, 90, false));
    assert_eq!(publisher.close(LONG).dropped, 100);
}
