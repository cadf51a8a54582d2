// SPDX-License-Identifier: MPL-2.0
//! Pictures in a terminal: two pixels in each character, in colours of 24 bits. A picture goes over the last one, and
//! nothing of the terminal has to be set back afterwards.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use console::Term;

use super::{plain, print_error};

/// Rows and columns of a terminal that does not tell.
const USUAL_SIZE: (usize, usize) = (24, 80);

/// Pixels as red, green and blue, each row beginning after so many bytes.
pub struct Pixels<'a> {
    pub data: &'a [u8],
    pub stride: usize,
    pub width: usize,
    pub height: usize,
    /// How wide a pixel is, in its heights.
    pub aspect: f64,
}

impl Pixels<'_> {
    /// The mean of the pixels that become this one of a picture of that size.
    fn mean(&self, (x, y): (usize, usize), (width, height): (usize, usize)) -> [u8; 3] {
        let range = |at: usize, of: usize, all: usize| {
            let begin = at * all / of;
            begin..((at + 1) * all / of).max(begin + 1)
        };
        let columns = range(x, width, self.width);
        let (mut sums, mut count) = ([0u64; 3], 0);
        for row in range(y, height, self.height) {
            let row = &self.data[row * self.stride..][3 * columns.start..3 * columns.end];
            for pixel in row.as_chunks::<3>().0 {
                sums.iter_mut().zip(pixel).for_each(|(sum, &value)| *sum += u64::from(value));
            }
            count += columns.len() as u64;
        }
        sums.map(|sum| (sum / count) as u8)
    }

    /// Lines of half blocks, as large as the room is.
    fn half_blocks(&self, rows: usize, columns: usize) -> Vec<String> {
        let shown = self.width as f64 * self.aspect;
        let scale = (columns as f64 / shown).min(2.0 * rows as f64 / self.height as f64);
        let width = ((shown * scale).round() as usize).clamp(1, columns);
        let lines = ((self.height as f64 * scale / 2.0).round() as usize).clamp(1, rows);
        let size = (width, 2 * lines);
        let line = |number: usize| {
            let mut text = String::new();
            let mut last = None;
            for x in 0..width {
                let colours = [self.mean((x, 2 * number), size), self.mean((x, 2 * number + 1), size)];
                if last != Some(colours) {
                    let [[r, g, b], [red, green, blue]] = colours;
                    let _ = write!(text, "\u{1b}[38;2;{r};{g};{b};48;2;{red};{green};{blue}m");
                    last = Some(colours);
                }
                text.push('▀');
            }
            text + "\u{1b}[0m"
        };
        (0..lines).map(line).collect()
    }
}

/// The terminal on stdout.
#[derive(Default)]
pub struct TerminalScreen {
    drawn: Mutex<Drawn>,
    is_gone: AtomicBool,
}

/// What is there of the last picture.
#[derive(Default)]
struct Drawn {
    /// Lines above the cursor that the next picture goes over.
    lines: usize,
    /// Rows and columns of the terminal.
    size: (usize, usize),
    status: String,
}

impl TerminalScreen {
    /// Draws a picture over the last one, with the status below.
    pub fn draw(&self, pixels: &Pixels<'_>) {
        let size = Term::stdout().size_checked().map(|(rows, columns)| (rows.into(), columns.into()));
        let (rows, columns) = size.filter(|(rows, columns)| *rows > 2 && *columns > 1).unwrap_or(USUAL_SIZE);
        // One for the status, and one for the cursor.
        let lines = pixels.half_blocks(rows - 2, columns);
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if drawn.size != (rows, columns) {
            // Lines have another length now: what is there cannot be drawn over.
            (drawn.size, drawn.lines) = ((rows, columns), 0);
        }
        let mut text = String::new();
        if drawn.lines > 0 {
            let _ = write!(text, "\u{1b}[{}A", drawn.lines);
        }
        let status: String = plain(&drawn.status).chars().take(columns - 1).collect();
        for line in lines.iter().chain([&status]) {
            let _ = write!(text, "\r{line}\u{1b}[K\n");
        }
        drawn.lines = lines.len() + 1;
        let mut out = io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            self.is_gone.store(true, Ordering::Relaxed);
        }
    }

    /// What stands below the next picture.
    pub fn set_status(&self, text: String) {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner).status = text;
    }

    /// The picture stays, and the next one is drawn below it.
    pub fn keep(&self) {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner).lines = 0;
    }

    /// A line that stays.
    pub fn line(&self, text: &str) {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        drawn.lines = 0;
        print_error(text);
    }

    /// Whether nobody sees it any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: [u8; 3] = [255, 0, 0];
    const BLUE: [u8; 3] = [0, 0, 255];

    fn pixels(data: &[u8], width: usize, height: usize, aspect: f64) -> Pixels<'_> {
        Pixels { data, stride: data.len() / height, width, height, aspect }
    }

    fn size(lines: &[String]) -> (usize, usize) {
        (lines.len(), lines[0].matches('▀').count())
    }

    #[test]
    fn two_pixels_are_a_character() {
        let data = [RED, RED, BLUE, BLUE].concat();
        let frame = pixels(&data, 2, 2, 1.0);
        assert_eq!(frame.half_blocks(1, 2), ["\u{1b}[38;2;255;0;0;48;2;0;0;255m▀▀\u{1b}[0m"]);
        // In more room it is larger, and its shape stays.
        assert_eq!(size(&frame.half_blocks(3, 100)), (3, 6));
        assert_eq!(size(&frame.half_blocks(100, 4)), (2, 4));
        assert_eq!(size(&pixels(&data, 2, 2, 2.0).half_blocks(3, 100)), (3, 12));
        assert_eq!(size(&pixels(&[7; 3000], 1000, 1, 1.0).half_blocks(9, 20)), (1, 20));
    }

    #[test]
    fn a_large_picture_is_its_mean() {
        // There is a byte behind each row.
        let row = [&RED[..], &RED, &BLUE, &BLUE, &[7]].concat();
        let data = row.repeat(8);
        let frame = pixels(&data, 4, 8, 1.0);
        let line = "\u{1b}[38;2;255;0;0;48;2;255;0;0m▀\u{1b}[38;2;0;0;255;48;2;0;0;255m▀\u{1b}[0m";
        assert_eq!(frame.half_blocks(2, 2), [line, line]);
        assert_eq!(frame.half_blocks(1, 1), ["\u{1b}[38;2;127;0;127;48;2;127;0;127m▀\u{1b}[0m"]);
    }
}
