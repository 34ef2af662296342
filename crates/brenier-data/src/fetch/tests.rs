//! Tests of `fetch`.

use super::*;
use crate::StopToken;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use zip::write::{SimpleFileOptions, ZipWriter};

/// What the server does with one request, in order; the last answer repeats.
#[derive(Clone)]
enum Answer {
    /// The file, or the part asked for.
    Serve(Vec<u8>),
    /// The whole length announced, the connection closed after this many bytes.
    Cut(Vec<u8>, usize),
    /// The file from the start, whatever was asked for.
    Whole(Vec<u8>),
    /// A status line.
    Status(&'static str),
}

/// A server on this machine; returns its address and the requests' paths with the `Range` asked for.
fn serve(answers: Vec<Answer>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    std::thread::spawn(move || {
        for (index, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let path = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default().to_owned();
            let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let range = headers.iter().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                let value = value.strip_prefix("bytes=")?.strip_suffix('-')?;
                name.eq_ignore_ascii_case("range").then(|| value.parse::<usize>().unwrap())
            });
            seen.lock().unwrap().push(format!("{path} {range:?}"));
            let answer = &answers[index.min(answers.len() - 1)];
            let send =
                |stream: &mut std::net::TcpStream, status: &str, extra: String, length, body: &[u8]| {
                    let head = format!(
                        "HTTP/1.1 {status}\r\n{extra}Content-Length: {length}\r\nConnection: close\r\n\r\n"
                    );
                    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
                };
            match (answer, range) {
                (Answer::Status(status), _) => send(&mut stream, status, String::new(), 0, b""),
                (Answer::Serve(body), Some(start)) if start >= body.len() => {
                    send(&mut stream, "416 Range Not Satisfiable", String::new(), 0, b"");
                }
                (Answer::Serve(body), Some(start)) => {
                    let total = body.len();
                    let extra = format!("Content-Range: bytes {start}-{}/{total}\r\n", total - 1);
                    send(&mut stream, "206 Partial Content", extra, total - start, &body[start..]);
                }
                (Answer::Serve(body) | Answer::Whole(body), _) => {
                    send(&mut stream, "200 OK", String::new(), body.len(), body);
                }
                (Answer::Cut(body, at), _) => {
                    send(&mut stream, "200 OK", String::new(), body.len(), &body[..*at]);
                }
            }
        }
    });
    (address, log)
}

const TEXT: &[u8] = b"\"first\";\"second\"\n1;2.5\n-3;4e-1\n";

fn set(file: &'static str) -> UciSet {
    let table = Table::new(vec!["a".into(), "b".into()], vec![1.0, 2.5, -3.0, 0.4]).unwrap();
    UciSet {
        name: "tiny",
        title: "Tiny",
        doi: "",
        columns: &["a", "b"],
        rows: 2,
        dropped: &[],
        targets: 1,
        joint: false,
        sha256: table.hash().leak(),
        file,
        archive: "static/tiny.zip",
    }
}

fn fetch(set: &UciSet, folder: &Path, mirror: String) -> Result<Fetched> {
    let settings = FetchSettings { mirror, attempts: 3, pause: Duration::from_millis(1) };
    fetch_uci(set, folder, &settings, Run::silent())
}

fn hidden(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).filter(|name| name.starts_with('.')).collect()
}

fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn a_table_is_fetched_once_and_then_kept() {
    let (mirror, log) = serve(vec![Answer::Serve(TEXT.to_vec())]);
    let folder = tempfile::tempdir().unwrap();
    let (folder, set) = (folder.path().join("new/folder"), set("ml/tiny.csv"));
    assert_eq!(fetch(&set, &folder, mirror.clone()).unwrap(), Fetched::Downloaded);
    assert_eq!(fs::read_to_string(set.path(&folder)).unwrap(), "a,b\n1,2.5\n-3,0.4\n");
    assert_eq!(fetch(&set, &folder, mirror + "/").unwrap(), Fetched::Present);
    assert_eq!(*log.lock().unwrap(), ["/ml/tiny.csv None"]);
    assert!(hidden(&folder).is_empty());
    fs::write(set.path(&folder), "a,b\n1,2\n").unwrap();
    let text = fetch(&set, &folder, String::new()).unwrap_err().to_string();
    assert!(text.contains("not the published table tiny") && text.contains("move it away"), "{text}");
}

#[test]
fn a_cut_connection_is_resumed_where_it_broke() {
    let answers = vec![Answer::Cut(TEXT.to_vec(), 20), Answer::Serve(TEXT.to_vec())];
    let (mirror, log) = serve(answers);
    let folder = tempfile::tempdir().unwrap();
    let mut events = Vec::new();
    let settings = FetchSettings { mirror, attempts: 3, pause: Duration::from_millis(1) };
    let mut observer = |event: &crate::Event| {
        events.push(format!("{event:?}"));
        Ok(())
    };
    fetch_uci(&set("tiny.csv"), folder.path(), &settings, Run::observed(&mut observer)).unwrap();
    assert_eq!(*log.lock().unwrap(), ["/tiny.csv None", "/tiny.csv Some(20)"]);
    let resumed = format!("have: 20, total: Some({})", TEXT.len());
    assert!(events.iter().any(|event| event.contains(&resumed)), "{events:?}");
}

/// At the first block, in a pause between attempts, and before anything was asked for.
#[test]
fn a_stopped_download_leaves_no_table_and_goes_on_later() {
    let set = set("tiny.csv");
    for (answer, kept) in
        [(Answer::Serve(TEXT.to_vec()), TEXT), (Answer::Cut(TEXT.to_vec(), 12), &TEXT[..12])]
    {
        let folder = tempfile::tempdir().unwrap();
        let (mirror, log) = serve(vec![answer, Answer::Serve(TEXT.to_vec())]);
        let stop = StopToken::new();
        let mut observer = |event: &crate::Event| {
            match event.get() {
                Some(FetchEvent::Received { bytes }) if *bytes == TEXT.len() as u64 => stop.stop(),
                Some(FetchEvent::Failed { .. }) => stop.stop(),
                _ => {}
            }
            Ok(())
        };
        let settings = FetchSettings { mirror: mirror.clone(), attempts: 3, pause: Duration::from_secs(600) };
        let error = fetch_uci(&set, folder.path(), &settings, Run::observed(&mut observer).stop(&stop));
        let error = error.unwrap_err();
        assert!(matches!(&error, Error::Stopped(text) if text.contains("again to continue")), "{error}");
        assert!(!set.path(folder.path()).exists());
        assert_eq!(fs::read(folder.path().join(".tiny.csv.part")).unwrap(), kept);
        assert_eq!(log.lock().unwrap().len(), 1);
        fetch(&set, folder.path(), mirror).unwrap();
        assert!(hidden(folder.path()).is_empty());
        let nowhere = folder.path().join("new");
        let error = fetch_uci(&set, &nowhere, &settings, Run::silent().stop(&stop)).unwrap_err();
        assert!(matches!(error, Error::Stopped(_)) && !nowhere.exists(), "{error}");
    }
}

#[test]
fn a_later_run_goes_on_and_a_server_without_parts_starts_over() {
    for second in [Answer::Serve(TEXT.to_vec()), Answer::Whole(TEXT.to_vec())] {
        let folder = tempfile::tempdir().unwrap();
        let set = set("tiny.csv");
        let (mirror, _) = serve(vec![Answer::Cut(TEXT.to_vec(), 12), Answer::Status("503 Busy")]);
        let text = fetch(&set, folder.path(), mirror).unwrap_err().to_string();
        assert!(text.contains("503") && text.contains("run the same command again"), "{text}");
        assert_eq!(fs::read(folder.path().join(".tiny.csv.part")).unwrap(), &TEXT[..12]);
        let (mirror, log) = serve(vec![second]);
        fetch(&set, folder.path(), mirror).unwrap();
        assert_eq!(log.lock().unwrap()[0], "/tiny.csv Some(12)");
        assert!(hidden(folder.path()).is_empty());
    }
}

#[test]
fn a_part_of_something_else_is_thrown_away() {
    let set = set("tiny.csv");
    // As long as the file or longer, or of another file.
    for part in [&[b'x'; 200][..], &b"1;1\n"[..]] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".tiny.csv.part"), part).unwrap();
        let (mirror, log) = serve(vec![Answer::Serve(TEXT.to_vec())]);
        fetch(&set, folder.path(), mirror).unwrap();
        assert_eq!(log.lock().unwrap().last().unwrap(), "/tiny.csv None");
    }
}

#[test]
fn wrong_values_are_refused_and_leave_nothing() {
    let (mirror, _) = serve(vec![Answer::Serve(b"1 2.5\n-3 0.5\n".to_vec())]);
    let folder = tempfile::tempdir().unwrap();
    let text = fetch(&set("tiny.data"), folder.path(), mirror).unwrap_err().to_string();
    assert!(text.contains("not the published table tiny") && text.contains("SHA-256"), "{text}");
    assert!(text.contains("not a zip archive"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_archive_serves_when_the_file_does_not() {
    let zip = archive(&[("readme.txt", b"x"), ("folder/tiny.data", b" 1  2.5\n-3  0.4 \n\n")]);
    let (mirror, log) = serve(vec![Answer::Status("404 Not Found"), Answer::Serve(zip)]);
    let folder = tempfile::tempdir().unwrap();
    fetch(&set("ml/tiny.data"), folder.path(), mirror).unwrap();
    assert_eq!(*log.lock().unwrap(), ["/ml/tiny.data None", "/static/tiny.zip None"]);
}

#[test]
fn an_unreachable_mirror_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    for mirror in ["http://127.0.0.1:1", "no address"] {
        let error = fetch(&set("tiny.csv"), folder.path(), mirror.into()).unwrap_err();
        assert!(matches!(error, Error::Download(_)), "{error}");
        assert!(error.to_string().starts_with("the table tiny could not be fetched"), "{error}");
    }
}

#[test]
fn workbooks_are_read_below_their_header() {
    let sheet = br#"<?xml version="1.0"?><worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">
        <sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>X1</t></is></c><c r="B1" t="inlineStr"><is><t>Y1</t></is></c></row>
        <row r="2"><c r="A2"><v>1</v></c><c r="B2"><v>2.5</v></c></row>
        <row r="3"><c r="A3"><v>-3</v></c><c r="B3"><v>0.4</v></c></row>
        <row r="4"><c r="A4" t="inlineStr"><is><t> </t></is></c></row></sheetData></worksheet>"#;
    let members: [(&str, &[u8]); 5] = [
        (
            "[Content_Types].xml",
            br#"<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>"#,
        ),
        (
            "_rels/.rels",
            br#"<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#,
        ),
        (
            "xl/workbook.xml",
            br#"<?xml version="1.0"?><workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>"#,
        ),
        (
            "xl/_rels/workbook.xml.rels",
            br#"<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#,
        ),
        ("xl/worksheets/sheet1.xml", sheet),
    ];
    let book = archive(&members);
    assert_eq!(workbook(book.clone(), 2).unwrap(), [1.0, 2.5, -3.0, 0.4]);
    let text = workbook(book.clone(), 3).unwrap_err();
    assert!(text.contains("row 2, column 3: found nothing"), "{text}");
    assert!(workbook(b"no".to_vec(), 2).unwrap_err().contains("not a workbook"));
    let (mirror, _) = serve(vec![Answer::Serve(book)]);
    let folder = tempfile::tempdir().unwrap();
    fetch(&set("ml/tiny.xlsx"), folder.path(), mirror).unwrap();
}

#[test]
fn content_ranges() {
    assert_eq!(content_range("bytes 5-9/10"), Some((5, Some(10))));
    assert_eq!(content_range("bytes 5-9/*"), Some((5, None)));
    assert_eq!(content_range("chunks 5-9/10"), None);
}
