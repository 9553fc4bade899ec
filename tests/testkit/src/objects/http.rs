//! The little of HTTP and of the texts of S3 that the server speaks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, Read, Write};
use std::net::TcpStream;
use std::ops::Range;

use super::{Kind, Wrong};

/// The most bytes of a body.
const MOST: usize = 1 << 30;

/// A request.
#[derive(Debug, Default)]
pub(super) struct Request {
    method: String,
    /// Bucket and name.
    pub(super) object: String,
    pub(super) query: BTreeMap<String, String>,
    range: Option<Range<usize>>,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Request> {
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let first = line(from)?;
        let mut words = first.split(' ');
        let (method, target) = words.next().zip(words.next()).ok_or_else(bad)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key.to_owned(), decoded(value))
        });
        let mut request = Request {
            method: method.to_owned(),
            object: decoded(path.trim_start_matches('/')),
            query: pairs.collect(),
            ..Request::default()
        };
        let mut length = 0;
        loop {
            let line = line(from)?;
            let Some((key, value)) = line.split_once(':') else { break };
            match key.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(|_| bad())?,
                "range" => request.range = range(value.trim()),
                _ => {}
            }
        }
        if length > MOST {
            return Err(bad());
        }
        request.body = vec![0; length];
        from.read_exact(&mut request.body)?;
        Ok(request)
    }

    /// The number of the piece, counted from 1; 0 without one.
    pub(super) fn piece(&self) -> usize {
        self.query.get("partNumber").and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    pub(super) fn kind(&self) -> Kind {
        let has = |key| self.query.contains_key(key);
        match self.method.as_str() {
            "PUT" if has("uploadId") => "part",
            "PUT" => "put",
            "POST" if has("uploads") => "begin",
            "POST" => "complete",
            "DELETE" if has("uploadId") => "abort",
            "DELETE" => "delete",
            "HEAD" => "head",
            _ if has("list-type") => "list",
            _ => "get",
        }
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    // A line of a client of ours is short.
    if from.take(1 << 16).read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

fn range(value: &str) -> Option<Range<usize>> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    Some(first.parse().ok()?..last.parse::<usize>().ok()? + 1)
}

/// A text with `%2F` and the like read back.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after
            .get(..2)
            .filter(|_| byte == b'%')
            .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(hex.unwrap_or(byte));
        rest = if hex.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What the server answers; nothing breaks the connection.
#[derive(Debug, Default)]
pub(super) struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
    /// The length that is announced.
    length: usize,
    breaks: bool,
}

impl Answer {
    /// No answer: the connection breaks.
    pub(super) fn none() -> Answer {
        Answer { breaks: true, ..Answer::default() }
    }

    pub(super) fn status(status: u16) -> Answer {
        Answer { status, ..Answer::default() }
    }

    fn text(text: String) -> Answer {
        Answer { status: 200, length: text.len(), body: text.into_bytes(), ..Answer::default() }
    }

    /// It was done.
    pub(super) fn done(kind: Kind) -> Answer {
        let text = match kind {
            "begin" => return Answer::begun("nothing"),
            "complete" => {
                "<CompleteMultipartUploadResult><Location>x</Location><Bucket>b</Bucket>\
                 <Key>k</Key><ETag>\"e\"</ETag></CompleteMultipartUploadResult>"
            }
            _ => "",
        };
        Answer { headers: "ETag: \"e\"\r\n".into(), ..Answer::text(text.into()) }
    }

    pub(super) fn begun(id: &str) -> Answer {
        Answer::text(format!(
            "<InitiateMultipartUploadResult><UploadId>{id}</UploadId>\
             </InitiateMultipartUploadResult>"
        ))
    }

    pub(super) fn list<'a>(found: impl Iterator<Item = (&'a str, usize)>) -> Answer {
        let mut text = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
        for (name, bytes) in found {
            let _ = write!(
                text,
                "<Contents><Key>{name}</Key><Size>{bytes}</Size>\
                 <LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"e\"</ETag></Contents>"
            );
        }
        Answer::text(text + "</ListBucketResult>")
    }

    /// An object, or the part of it that was asked for.
    pub(super) fn object(bytes: &[u8], request: &Request, wrong: Option<Wrong>) -> Answer {
        let size = bytes.len() + if wrong == Some(Wrong::More) { 10 } else { 0 };
        let date = "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nETag: \"e\"\r\n";
        if request.method == "HEAD" {
            return Answer { status: 200, headers: date.into(), length: size, ..Answer::default() };
        }
        let range = request.range.clone().unwrap_or(0..size);
        let mut body = bytes[range.start.min(bytes.len())..range.end.min(bytes.len())].to_vec();
        let (mut length, mut breaks) = (body.len(), false);
        match wrong {
            Some(Wrong::Cut) => {
                body.truncate(length / 2);
                breaks = true;
            }
            Some(Wrong::Less) => {
                body.truncate(length / 2);
                length = body.len();
            }
            Some(Wrong::Change) => body.iter_mut().take(1).for_each(|byte| *byte ^= 1),
            _ => {}
        }
        let (first, last) = (range.start, range.end - 1);
        let headers = format!("{date}Content-Range: bytes {first}-{last}/{size}\r\n");
        let status = if request.range.is_some() { 206 } else { 200 };
        Answer { status, headers, body, length, breaks }
    }

    /// Sends it; an error ends the connection.
    pub(super) fn send(&self, to: &mut TcpStream) -> io::Result<()> {
        if self.status == 0 {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let Answer { status, headers, length, .. } = self;
        let head = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n");
        to.write_all(&[head.as_bytes(), &self.body].concat())?;
        if self.breaks { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}
