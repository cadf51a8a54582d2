// SPDX-License-Identifier: MPL-2.0
//! What was recorded, and snapshots: lists, and the files in parts, as players ask for them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use gsttrt_core::files::open_regular_with;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use super::ServerState;
use super::answer::{ApiError, written};
use super::entries::PathName;
use crate::serve::archive::UtcTime;
use crate::serve::control::{RecordingFilter, Refused};
use crate::serve::heap;

/// Recordings of an answer, unless the request says otherwise.
const PAGE: usize = 1000;
const MAX_PAGE: usize = 10_000;
/// Bytes of an answer whose memory is worth giving back at once.
const LARGE: usize = 1 << 20;
/// Bytes that are read at once.
const PIECE: u64 = 256 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordingQuery {
    source: Option<String>,
    event: Option<String>,
    identity: Option<u64>,
    from: Option<String>,
    to: Option<String>,
    limit: Option<usize>,
}

fn wrong(text: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, text)
}

fn not_understood(keys: &str) -> ApiError {
    let numbers = "identity and limit are whole numbers from 0 on";
    wrong(format!("The query is not understood: its keys are {keys}, each of them once; {numbers}."))
}

fn moment(key: &str, text: Option<&String>) -> Result<Option<UtcTime>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let form = "Write it like 2026-11-24T09:44:13Z, with %2B for a plus";
    UtcTime::parse(text).map(Some).ok_or_else(|| wrong(format!("The time of {key} is not understood. {form}.")))
}

pub async fn recordings(
    State(context): State<Arc<ServerState>>,
    wanted: Result<Query<RecordingQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(wanted) = wanted.map_err(|_| not_understood("source, event, identity, from, to and limit"))?;
    let limit = page(wanted.limit)?;
    let filter = RecordingFilter {
        from: moment("from", wanted.from.as_ref())?,
        to: moment("to", wanted.to.as_ref())?,
        source: wanted.source,
        event: wanted.event,
        identity: wanted.identity,
        limit,
        ..RecordingFilter::default()
    };
    list(&context, filter).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotQuery {
    source: Option<String>,
    label: Option<String>,
    identity: Option<u64>,
    from: Option<String>,
    to: Option<String>,
    limit: Option<usize>,
}

pub async fn snapshots(
    State(context): State<Arc<ServerState>>,
    wanted: Result<Query<SnapshotQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(wanted) = wanted.map_err(|_| not_understood("source, label, identity, from, to and limit"))?;
    let filter = RecordingFilter {
        from: moment("from", wanted.from.as_ref())?,
        to: moment("to", wanted.to.as_ref())?,
        source: wanted.source,
        label: wanted.label,
        identity: wanted.identity,
        is_snapshot: true,
        limit: page(wanted.limit)?,
        ..RecordingFilter::default()
    };
    list(&context, filter).await
}

fn page(limit: Option<usize>) -> Result<usize, ApiError> {
    let limit = limit.unwrap_or(PAGE);
    if (1..=MAX_PAGE).contains(&limit) { Ok(limit) } else { Err(wrong(format!("A limit is 1 to {MAX_PAGE}."))) }
}

async fn list(context: &ServerState, filter: RecordingFilter) -> Result<Response, ApiError> {
    let place = tokio::time::timeout(context.limits.frame, context.lists.clone().acquire_owned());
    let Ok(Ok(place)) = place.await else {
        let number = context.limits.lists;
        let text = format!(
            "The list is refused: {number} of them are being made. Ask again later, and for less: limit, source, from, to."
        );
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text));
    };
    // Of years, they are many.
    let text = context.in_background(move |service| {
        let _place = place; // also where the client has gone
        let text = serde_json::to_vec(&service.recordings(&filter));
        // As maps they take ten times as much.
        if text.as_ref().is_ok_and(|text| text.len() > LARGE) {
            heap::trim();
        }
        Ok(text)
    });
    Ok(written(StatusCode::OK, text.await?))
}

pub async fn recording(
    State(context): State<Arc<ServerState>>,
    PathName(name): PathName,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Ok(place) = context.watchers.clone().try_acquire_owned() else {
        let number = context.limits.watchers;
        let text = format!("The recording is refused: {number} views and recordings are being sent. Close one.");
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text));
    };
    let kind = match name.rsplit('.').next() {
        Some("mkv") => "video/x-matroska",
        Some("jpg") => "image/jpeg",
        _ => "video/mp4",
    };
    let (file, length, tag) = context
        .in_background(move |service| {
            let path = service.recording(&name)?;
            let unknown = |_| {
                Refused::Unknown(format!(
                    "{name} is gone: it was removed. GET /recordings and /snapshots list what there is."
                ))
            };
            let file = open_regular_with(File::options().read(true), &path, libc::O_NOFOLLOW).map_err(unknown)?;
            let found = file.metadata().map_err(unknown)?;
            let changed = found.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
            let tag = format!("\"{:x}-{:x}\"", found.len(), changed.map_or(0, |time| time.as_nanos()));
            Ok((file, found.len(), tag))
        })
        .await?;
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // A part of another file would not fit.
    let is_same = text(header::IF_RANGE).is_none_or(|wanted| wanted == tag);
    let (status, part) =
        match text(header::RANGE).filter(|_| is_same).map_or(FilePart::Whole, |range| part(range, length)) {
            FilePart::Whole => (StatusCode::OK, 0..length),
            FilePart::Of(part) => (StatusCode::PARTIAL_CONTENT, part),
            FilePart::Outside => {
                let text = format!("The part is refused: it begins behind the end. The recording has {length} bytes.");
                let mut refused = ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, text).into_response();
                let size = format!("bytes */{length}").parse().expect("it is plain text");
                refused.headers_mut().insert(header::CONTENT_RANGE, size);
                return Ok(refused);
            }
        };
    let mut head = vec![
        (header::CONTENT_TYPE, kind.to_string()),
        (header::ACCEPT_RANGES, "bytes".into()),
        (header::ETAG, tag),
        (header::CONTENT_LENGTH, (part.end - part.start).to_string()),
    ];
    if status == StatusCode::PARTIAL_CONTENT {
        head.push((header::CONTENT_RANGE, format!("bytes {}-{}/{length}", part.start, part.end - 1)));
    }
    let reading = FileReading { file: Arc::new(file), part, _place: place };
    let mut answer = Body::from_stream(stream::unfold(reading, FileReading::piece)).into_response();
    *answer.status_mut() = status;
    for (name, value) in head {
        answer.headers_mut().insert(name, value.parse().expect("it is plain text"));
    }
    Ok(answer)
}

/// What a client wants of a file.
#[derive(Debug, PartialEq)]
enum FilePart {
    Whole,
    Of(Range<u64>),
    /// There is no such part.
    Outside,
}

/// By the header `Range`. What is not understood, and several parts at once, are answered with the whole file, as HTTP has it.
fn part(range: &str, length: u64) -> FilePart {
    let Some((first, last)) = range.trim().strip_prefix("bytes=").and_then(|range| range.trim().split_once('-')) else {
        return FilePart::Whole;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (first.trim().is_empty(), last.trim().is_empty(), number(first), number(last)) {
        // The last bytes.
        (true, false, None, Some(count)) if count > 0 && length > 0 => {
            FilePart::Of(length.saturating_sub(count)..length)
        }
        (true, false, None, Some(_)) => FilePart::Outside,
        (false, true, Some(first), None) if first < length => FilePart::Of(first..length),
        (false, false, Some(first), Some(last)) if first > last => FilePart::Whole,
        (false, false, Some(first), Some(last)) if first < length => {
            FilePart::Of(first..last.saturating_add(1).min(length))
        }
        (false, _, Some(_), _) if last.trim().is_empty() || number(last).is_some() => FilePart::Outside,
        _ => FilePart::Whole,
    }
}

/// A file on its way to a client, as fast as it is taken. Dropped with the connection.
struct FileReading {
    file: Arc<File>,
    /// What is still to be sent.
    part: Range<u64>,
    _place: OwnedSemaphorePermit,
}

impl FileReading {
    async fn piece(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.part.is_empty() {
            return None;
        }
        let (file, begin) = (self.file.clone(), self.part.start);
        let count = PIECE.min(self.part.end - begin);
        // A disk does not hold up other clients.
        let read = tokio::task::spawn_blocking(move || {
            let mut file = &*file;
            let mut piece = vec![0; count as usize];
            file.seek(SeekFrom::Start(begin))?;
            file.read_exact(&mut piece)?;
            Ok(Bytes::from(piece))
        });
        let piece = read.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        self.part.start = if piece.is_ok() { begin + count } else { self.part.end };
        Some((piece, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_what_http_says() {
        for (range, wanted) in [
            ("bytes=0-9", FilePart::Of(0..10)),
            ("bytes=0-0", FilePart::Of(0..1)),
            ("bytes=90-", FilePart::Of(90..100)),
            ("bytes=90-1000", FilePart::Of(90..100)),
            (" bytes= 5 - 6 ", FilePart::Of(5..7)),
            ("bytes=-10", FilePart::Of(90..100)),
            ("bytes=-1000", FilePart::Of(0..100)),
            ("bytes=0-18446744073709551615", FilePart::Of(0..100)),
            ("bytes=100-", FilePart::Outside),
            ("bytes=100-200", FilePart::Outside),
            ("bytes=-0", FilePart::Outside),
            // Not understood, or several.
            ("bytes=9-5", FilePart::Whole),
            ("bytes=0-1,5-6", FilePart::Whole),
            ("bytes=a-b", FilePart::Whole),
            ("bytes=-", FilePart::Whole),
            ("bytes=5", FilePart::Whole),
            ("bytes=18446744073709551616-", FilePart::Whole),
            ("lines=0-9", FilePart::Whole),
            ("", FilePart::Whole),
        ] {
            assert_eq!(part(range, 100), wanted, "{range}");
        }
        assert_eq!(part("bytes=0-", 0), FilePart::Outside);
        assert_eq!(part("bytes=-5", 0), FilePart::Outside);
    }
}
