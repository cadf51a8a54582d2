// SPDX-License-Identifier: MPL-2.0
//! A server that is made up: what it says is what a test wants it to say.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

/// The next command.
fn command_from(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut number = |mark: char| {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        line.trim_end().strip_prefix(mark)?.parse::<usize>().ok()
    };
    let count = number('*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let length: usize = line.trim_end().strip_prefix('$')?.parse().ok()?;
        let mut word = vec![0; length + 2];
        stream.read_exact(&mut word).ok()?;
        word.truncate(length);
        words.push(String::from_utf8(word).unwrap());
    }
    Some(words)
}

/// A stream of Redis, as far as this client needs one.
#[derive(Default)]
struct Stream {
    entries: Vec<String>,
    queued: Option<Vec<String>>,
}

impl Stream {
    fn reply(&mut self, words: &[String]) -> String {
        let entry = |(number, text): (usize, &String)| {
            let id = format!("{}-0", number + 1);
            format!("*2\r\n${}\r\n{id}\r\n*2\r\n$8\r\nmetadata\r\n${}\r\n{text}\r\n", id.len(), text.len())
        };
        match words[0].as_str() {
            "PING" => "+PONG\r\n".into(),
            "XREVRANGE" => match self.entries.iter().enumerate().next_back() {
                Some(last) => format!("*1\r\n{}", entry(last)),
                None => "*0\r\n".into(),
            },
            "XRANGE" => {
                let first = words[2].split('-').next().unwrap().parse::<usize>().unwrap_or(0).saturating_sub(1);
                let page: Vec<String> = self.entries.iter().enumerate().skip(first).take(1000).map(entry).collect();
                format!("*{}\r\n{}", page.len(), page.concat())
            }
            "MULTI" => {
                self.queued = Some(Vec::new());
                "+OK\r\n".into()
            }
            "XADD" => {
                self.queued.as_mut().unwrap().push(words.last().unwrap().clone());
                "+QUEUED\r\n".into()
            }
            "EXEC" => {
                let queued = self.queued.take().unwrap();
                let ids = queued.into_iter().map(|text| {
                    self.entries.push(text);
                    let id = format!("{}-0", self.entries.len());
                    format!("${}\r\n{id}\r\n", id.len())
                });
                let ids: Vec<String> = ids.collect();
                format!("*{}\r\n{}", ids.len(), ids.concat())
            }
            other => panic!("{other}"),
        }
    }
}

fn client(port: u16, timeout: Duration) -> Box<dyn Destination> {
    let address = Address::parse(&format!("redis://127.0.0.1:{port}/key"), &["redis"]).unwrap();
    open(&address, &PublishOptions { timeout, ..PublishOptions::default() }).unwrap()
}

const LONG: Duration = Duration::from_secs(30);

/// Messages with the same text, as `format=coco` has them for frames without results, are still several.
#[test]
fn what_was_sent_when_the_connection_broke_is_neither_lost_nor_doubled() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let mut stream = Stream::default();
        let mut batches = 0;
        while batches < 4 {
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            while let Some(words) = command_from(&mut reader) {
                batches += usize::from(words[0] == "EXEC");
                let reply = match (words[0].as_str(), batches) {
                    // The connection breaks before the second batch, and behind it when it is sent again.
                    ("EXEC", 2) => break,
                    ("EXEC", 3) => {
                        stream.reply(&words);
                        break;
                    }
                    _ => stream.reply(&words),
                };
                reader.get_mut().write_all(reply.as_bytes()).unwrap();
                if batches == 4 {
                    break;
                }
            }
        }
        stream.entries
    });
    let mut client = client(port, LONG);
    let batches = [["[]", "[]"], ["[]", "[]"], ["[]", "a"]].map(|batch| batch.map(String::from));
    for batch in &batches {
        loop {
            if client.connect().is_ok() && client.send(batch).is_ok() {
                break;
            }
        }
    }
    drop(client);
    assert_eq!(server.join().unwrap(), batches.concat());
}

#[test]
fn a_batch_is_found_behind_many_entries_of_others() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, mut is_first) = (Stream::default(), true);
        for _ in 0..2 {
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            while let Some(words) = command_from(&mut reader) {
                let breaks = words[0] == "EXEC" && std::mem::take(&mut is_first);
                if breaks {
                    stream.entries.extend(vec!["theirs".to_string(); 1500]);
                }
                let reply = stream.reply(&words);
                if breaks {
                    break; // it has run, and nobody is told
                }
                reader.get_mut().write_all(reply.as_bytes()).unwrap();
            }
        }
        stream.entries.iter().filter(|entry| *entry == "ours").count()
    });
    let mut client = client(port, LONG);
    client.connect().unwrap();
    assert!(client.send(&["ours".into()]).is_err());
    client.connect().unwrap();
    assert!(client.send(&["ours".into()]).is_ok());
    drop(client);
    assert_eq!(server.join().unwrap(), 1);
}

/// What a server may announce or send without end, and never anything else.
#[test]
fn endless_answers_are_given_up() {
    let longest = "a".repeat(1 << 16);
    for (head, more) in [
        ("$9999999999999\r\n", &*longest),
        ("$9223372036854775807\r\n", &longest),
        ("*2147483647\r\n", ":1\r\n"),
        ("+", &longest),
        ("-", &longest),
        (">2\r\n", "+a\r\n"),
        ("+PONG\r\n", "+PONG\r\n"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (head, more) = (head.to_string(), more.repeat(1 + (1 << 16) / more.len()));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut sent = stream.write(head.as_bytes()).unwrap();
            while let Ok(count) = stream.write(more.as_bytes()) {
                sent += count;
            }
            sent
        });
        let mut client = client(port, LONG);
        let failed = match client.connect() {
            Ok(()) => client.send(&["{}".into()]).map_err(|undelivered| undelivered.error),
            failed => failed,
        };
        assert!(failed.is_err());
        drop(client);
        // Buffers of the system have some of it.
        assert!(server.join().unwrap() < 64 << 20);
    }
}

#[test]
fn an_error_of_the_server_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        command_from(&mut reader).unwrap();
        reader.get_mut().write_all(b"-NOAUTH Authentication required.\r\n").unwrap();
    });
    let error = client(port, LONG).connect().unwrap_err();
    assert!(error.to_string().contains("NOAUTH"), "{error}");
    server.join().unwrap();
}
