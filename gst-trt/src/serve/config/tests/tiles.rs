// SPDX-License-Identifier: MPL-2.0
//! Many sources in one picture: what can be written, and what is wrong.

use super::*;
use crate::serve::output::TilesConfig;

/// Lines of the right one, before the table.
const LINES: usize = 24;

fn with(tiles: &str) -> String {
    let second = "[[source]]\nname = \"t\"\naddress = \"rtsp://camera/2\"\n";
    let text = right() + second + "[[rtsp.tiles]]\n";
    assert_eq!(text.lines().count(), LINES + 1);
    text + tiles
}

#[test]
fn sources_are_put_in_one_picture() {
    let folder = scratch("config-sources_are_put_in_one_picture");
    let load = |text: &str| load(&folder, "tiles.toml", text.as_bytes());
    let config = load(&with("name = \"wall\"\n")).unwrap();
    let all = TilesConfig { name: "wall".into(), sources: None, columns: None, size: (1920, 1080), framerate: 15 };
    assert_eq!(config.tiles, [all]);
    assert!(config.rtsp.is_some() && config.sources.iter().all(|source| source.has_output));
    let keys = "name = \"wall\"\nsources = [\"t\"]\ncolumns = 3\nsize = \"1280x720\"\nframerate = 5\n\
                [[rtsp.tiles]]\nname = \"other\"\n";
    let config = load(&with(keys)).unwrap();
    let sources = Some(vec!["t".to_string()]);
    let first = TilesConfig { name: "wall".into(), sources, columns: Some(3), size: (1280, 720), framerate: 5 };
    assert_eq!((config.tiles.len(), &config.tiles[0]), (2, &first));
    // As the page has it.
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/videos.md")).unwrap();
    let table = page.split("```toml\n").filter_map(|rest| rest.split("```").next());
    let table = table.filter_map(|block| block.split_once("[[rtsp.tiles]]\n")).next().unwrap().1;
    let text = with(table).replace("name = \"s\"", "name = \"gate\"").replace("name = \"t\"", "name = \"street\"");
    assert_eq!(load(&text).unwrap().tiles[0].sources.as_ref().unwrap().len(), 2);
}

#[test]
fn a_picture_that_cannot_be_composed_is_named_with_its_line() {
    let folder = scratch("config-a_picture_that_cannot_be_composed");
    for (keys, line, said) in [
        ("", 1, "the key name is missing"),
        ("name = \"s\"", 2, "there is a source “s”, too: each video has a name of its own"),
        ("name = \"a b\"", 2, "a name has 1 to 64 ASCII letters"),
        ("name = \"a\"\n[[rtsp.tiles]]\nname = \"a\"", 4, "there is another picture “a”, too"),
        ("name = \"a\"\nsources = [\"x\"]", 3, "there is no source “x”. There are: s, t"),
        ("name = \"a\"\nsources = [\"t\", \"s\", \"t\"]", 3, "“t” is there twice"),
        ("name = \"a\"\nsources = []", 3, "there is nothing to show"),
        ("name = \"a\"\nsources = \"t\"", 3, "it is the text \"t\". Write a list"),
        ("name = \"a\"\ncolumns = 0", 3, "a picture has 1 to 16 columns"),
        ("name = \"a\"\ncolumns = 17", 3, "a picture has 1 to 16 columns"),
        ("name = \"a\"\ncolumns = -1", 3, "Write a whole number from 0 on"),
        ("name = \"a\"\nframerate = 0", 3, "there are 1 to 60 pictures a second"),
        ("name = \"a\"\nframerate = 61", 3, "there are 1 to 60 pictures a second"),
        ("name = \"a\"\nsize = 720", 3, "a size is a text: write its width and height"),
        ("name = \"a\"\nsize = \"720p\"", 3, "“720p” is no size of a picture: write its width and height"),
        ("name = \"a\"\nsize = \"640x361\"", 3, "even, from 64 to 7680 pixels"),
        ("name = \"a\"\nsize = \"32x32\"", 3, "even, from 64 to 7680 pixels"),
        ("name = \"a\"\nsize = \"64x64\"\ncolumns = 16", 3, "it leaves 4x64 pixels for each of 2 sources"),
        ("name = \"a\"\ncolumn = 2", 3, "did you mean “columns”?"),
    ] {
        let error = load(&folder, "wrong.toml", with(keys).as_bytes()).unwrap_err();
        let line = format!("line {}", LINES + line);
        assert!(error.contains(said) && error.contains(&line), "{keys}: {line}: {error}");
    }
    let many: String =
        (0..63).map(|number| format!("[[source]]\nname = \"n{number}\"\naddress = \"a.mp4\"\n")).collect();
    let error = load(&folder, "many.toml", (with("name = \"a\"\n") + &many).as_bytes()).unwrap_err();
    assert!(error.contains("65 sources are too many for one picture: it has at most 64"), "{error}");
    // Without other keys of [rtsp], and with them.
    let keys = "[rtsp]\nlisten = \"127.0.0.1:8555\"\nsei = true\n[http]";
    let config = load(&folder, "both.toml", with("name = \"a\"\n").replace("[http]", keys).as_bytes()).unwrap();
    assert!(config.sources.iter().all(|source| source.has_sei));
    assert_eq!(config.rtsp.unwrap().listen.port(), 8555);
    let config = load(&folder, "without.toml", with("name = \"a\"\n").as_bytes()).unwrap();
    assert!(config.sources.iter().all(|source| !source.has_sei));
}
