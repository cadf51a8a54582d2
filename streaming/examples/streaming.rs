// SPDX-License-Identifier: MPL-2.0
//! Receives tensors in chunks over TCP and runs a model on each: streaming MODEL
//!
//! Sender and receiver are threads of one process here. What goes over the line, numbers as u64, little-endian:
//!
//! * an announcement: 0, its number, the length of its description, and that: `images f32 1x3x512x512`
//! * a chunk: 1, the tensor's number, where it begins, its length, and its bytes
//! * the end of a tensor: 2, and its number
//! * the end of all: 3
//! * and back to the sender: credits

use std::error::Error;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::{process, thread};

use gsttrt_core::memory::Pool;
use gsttrt_core::session::{Session, parse_options};
use gsttrt_core::tensor::{DType, Dims, TensorDesc};
use gsttrt_streaming::{Received, Receiver, credits};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const TENSORS: u64 = 5;
const CHUNK: usize = 60_000;

// ------------------------------------------------------------------ the sender

/// Sends pictures of a disc that moves, their chunks in any order.
fn send(line: &TcpStream, desc: &TensorDesc) -> Result<()> {
    let (mut grants, mut line, mut granted) = (line, BufWriter::new(line), 0);
    for sequence in 0..TENSORS {
        let picture = disc(desc, sequence);
        while granted < credits(desc)? {
            granted += read_number(&mut grants)?;
        }
        granted -= credits(desc)?;
        let text = desc.to_string();
        write_numbers(&mut line, &[0, sequence, text.len() as u64])?;
        line.write_all(text.as_bytes())?;

        let mut chunks: Vec<(usize, &[u8])> = picture.chunks(CHUNK).enumerate().collect();
        chunks.sort_by_cached_key(|(i, _)| BuildHasherDefault::<DefaultHasher>::default().hash_one((sequence, i)));
        for (i, chunk) in chunks {
            write_numbers(&mut line, &[1, sequence, (i * CHUNK) as u64, chunk.len() as u64])?;
            line.write_all(chunk)?;
        }
        write_numbers(&mut line, &[2, sequence])?;
        line.flush()?;
    }
    write_numbers(&mut line, &[3])?;
    Ok(line.flush()?)
}

/// A red disc on grey, as f32 in planes of red, green and blue.
fn disc(desc: &TensorDesc, sequence: u64) -> Vec<u8> {
    let (height, width) = (desc.dims[2], desc.dims[3]);
    let (x0, y0, radius) = (width / 4 + width / 10 * sequence as i64, height / 2, height / 8);
    let is_inside = |x: i64, y: i64| (x - x0).pow(2) + (y - y0).pow(2) <= radius * radius;
    let plane = |red_green_or_blue: f32| {
        let pixels = (0..height).flat_map(move |y| (0..width).map(move |x| (x, y)));
        pixels.map(move |(x, y)| if is_inside(x, y) { red_green_or_blue } else { 0.45 })
    };
    [0.9, 0.1, 0.1].into_iter().flat_map(plane).flat_map(f32::to_ne_bytes).collect()
}

// ------------------------------------------------------------------ the receiver

/// Reads what the sender sends. The line's own backpressure does the rest: nothing is read before the last chunk has
/// its place.
fn receive(line: &TcpStream, receiver: &Receiver) -> Result<()> {
    let (mut line, mut chunk) = (BufReader::new(line), vec![0; CHUNK]);
    loop {
        match read_number(&mut line)? {
            0 => {
                let (sequence, length) = (read_number(&mut line)? as u64, read_number(&mut line)?);
                line.read_exact(chunk.get_mut(..length).ok_or("the description is too long")?)?;
                let text = std::str::from_utf8(&chunk[..length])?;
                let [name, dtype, dims] = text.split(' ').collect::<Vec<_>>()[..] else {
                    return Err(format!("“{text}” describes no tensor").into());
                };
                let desc = TensorDesc::new(name, dtype.parse()?, &dims.parse::<Dims>()?);
                receiver.announce(sequence, desc)?;
            }
            1 => {
                let (sequence, at) = (read_number(&mut line)? as u64, read_number(&mut line)?);
                let length = read_number(&mut line)?;
                let bytes = chunk.get_mut(..length).ok_or("the chunk is too long")?;
                line.read_exact(bytes)?;
                receiver.chunk(sequence, at, bytes)?;
            }
            2 => receiver.finish(read_number(&mut line)? as u64)?,
            3 => return Ok(receiver.close()?),
            other => return Err(format!("{other} begins nothing").into()),
        }
    }
}

/// Sends the sender its credits.
fn grant(mut line: &TcpStream, receiver: &Receiver) -> Result<()> {
    while let Some(granted) = receiver.grant()? {
        write_numbers(&mut line, &[granted as u64])?;
    }
    Ok(())
}

/// Runs the model on tensors as they come.
fn detect(session: &mut Session, receiver: &Receiver) -> Result<()> {
    while let Some(tensor) = receiver.take()? {
        print(&format!("tensor {}: {}, {}", tensor.sequence(), tensor.desc(), best(session, &tensor)?))?;
    } // its credits go back to the sender here
    Ok(())
}

/// Prints a line. A reader that has gone, such as `head`, ends the program.
fn print(line: &str) -> Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => process::exit(0),
        written => Ok(written?),
    }
}

/// The row with the highest score. The model's rows are cx, cy, w, h, objectness, and a score for each class.
fn best(session: &mut Session, tensor: &Received) -> Result<String> {
    let outputs = session.run_bytes(tensor.bytes().ok_or("the tensor is on a GPU")?)?;
    let rows = outputs[0].as_slice::<f32>().ok_or("the model's output is not f32")?;
    let labels = &session.model().labels;
    let scores = rows.chunks(5 + labels.len()).flat_map(|row| {
        labels.iter().zip(&row[5..]).map(move |(label, score)| (row[4] * score, label, row[0], row[1]))
    });
    let (score, label, x, y) = scores.max_by(|a, b| a.0.total_cmp(&b.0)).ok_or("the model has no output")?;
    Ok(format!("{label} {score:.2} at ({x:.0}, {y:.0})"))
}

// ------------------------------------------------------------------ both

fn read_number(line: &mut impl Read) -> Result<usize> {
    let mut bytes = [0; 8];
    line.read_exact(&mut bytes)?;
    Ok(usize::try_from(u64::from_le_bytes(bytes))?)
}

fn write_numbers(line: &mut impl Write, numbers: &[u64]) -> Result<()> {
    numbers.iter().try_for_each(|number| Ok(line.write_all(&number.to_le_bytes())?))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model] = &arguments[..] else { return Err("Usage: streaming MODEL".into()) };
    let (options, _) = parse_options(["backend=cpu"])?;
    let mut session = Session::open(model, &options)?;
    let desc = session.input().clone();
    if desc.dtype != DType::F32 || desc.dims.len() != 4 || desc.dims[..2] != [1, 3] {
        return Err(format!("The pictures are f32 1x3xHxW, and the model wants {desc}").into());
    }

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let theirs = TcpStream::connect(listener.local_addr()?)?;
    let (ours, _) = listener.accept()?;

    // A pool of pinned memory does as well; a session wants to see the bytes, so it should not be of a GPU's.
    let receiver = Receiver::new(Pool::default(), 2 * credits(&desc)?);
    // Where one part fails, all end: those that wait for the receiver, and those that wait for the line.
    let part = |outcome: Result<()>| {
        outcome.inspect_err(|error| {
            receiver.cancel(error);
            let _ = ours.shutdown(Shutdown::Both);
        })
    };
    thread::scope(|scope| {
        let parts = [
            scope.spawn(|| part(send(&theirs, &desc))),
            scope.spawn(|| part(receive(&ours, &receiver))),
            scope.spawn(|| part(grant(&ours, &receiver))),
        ];
        let detected = part(detect(&mut session, &receiver));
        let outcomes = parts.map(|part| part.join().expect("it does not panic"));
        // The detecting thread saw the first failure.
        detected.and(outcomes.into_iter().collect())
    })
}
