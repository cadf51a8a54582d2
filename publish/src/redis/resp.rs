// SPDX-License-Identifier: MPL-2.0
//! The protocol of Redis, RESP 2, as far as publishing needs it. How long an answer may be is the connection's matter.

use std::io::{self, BufRead, BufReader, Read, Write};

use crate::connection::{self, Connection};

pub struct RespConnection(BufReader<Connection>);

/// What a server says. Of a list only the length: its elements come next.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Text(Vec<u8>),
    Nothing,
    Number(i64),
    List(u64),
}

/// Appends a command: a list of texts.
pub fn command(bytes: &mut Vec<u8>, words: &[&str]) {
    bytes.extend(format!("*{}\r\n", words.len()).into_bytes());
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server does not speak the protocol of Redis")
}

impl RespConnection {
    pub fn new(connection: Connection) -> Self {
        RespConnection(BufReader::new(connection))
    }

    /// A new deadline, for all that is asked from now on.
    pub fn begin(&mut self) {
        self.0.get_mut().begin(0);
    }

    /// Writes commands, whose answers have so many bytes at most.
    pub fn send(&mut self, commands: &[u8], answers: usize) -> io::Result<()> {
        let connection = self.0.get_mut();
        connection.expect(answers);
        connection.write_all(commands)?;
        connection.flush()
    }

    /// The next reply.
    ///
    /// # Errors
    /// Also what the server says is an error.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line)?;
        let Some((kind, rest)) = line.strip_suffix(b"\r\n").and_then(|line| line.split_first()) else {
            return Err(if line.ends_with(b"\n") { wrong() } else { connection::closed() });
        };
        let number = || std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok()).ok_or_else(wrong);
        match kind {
            b'+' => Ok(Reply::Text(rest.to_vec())),
            b'-' => Err(io::Error::other(format!("the server says {}", String::from_utf8_lossy(rest)))),
            b':' => number().map(Reply::Number),
            b'$' | b'*' => match (kind, u64::try_from(number()?)) {
                (_, Err(_)) => Ok(Reply::Nothing),
                (b'*', Ok(length)) => Ok(Reply::List(length)),
                (_, Ok(length)) => self.text(length),
            },
            _ => Err(wrong()),
        }
    }

    /// A text of that length. Room is made for what comes, not for what is announced.
    fn text(&mut self, length: u64) -> io::Result<Reply> {
        let mut text = Vec::new();
        let end = length.checked_add(2).ok_or_else(wrong)?;
        (&mut self.0).take(end).read_to_end(&mut text)?;
        if (text.len() as u64) < end {
            return Err(connection::closed());
        }
        if !text.ends_with(b"\r\n") {
            return Err(wrong());
        }
        text.truncate(text.len() - 2);
        Ok(Reply::Text(text))
    }

    /// The length of a list.
    pub fn list(&mut self) -> io::Result<u64> {
        match self.reply()? {
            Reply::List(length) => Ok(length),
            Reply::Nothing => Ok(0),
            _ => Err(wrong()),
        }
    }

    pub fn bytes(&mut self) -> io::Result<Vec<u8>> {
        match self.reply()? {
            Reply::Text(text) => Ok(text),
            _ => Err(wrong()),
        }
    }
}
