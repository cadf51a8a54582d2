// SPDX-License-Identifier: MPL-2.0
use super::*;
use crate::analytics::engine::AnalyticsOptions;
use crate::analytics::tests::{DOOR, FRAME, GATE, ROOM, SIZE, plate};
use crate::analytics::*;
use crate::image::geometry::BBox;

/// A person of that box.
fn input(bbox: BBox) -> AnalyticsInput<'static> {
    AnalyticsInput { id: 1, bbox, label: "person", class: Some(0), confidence: None, attributes: &[] }
}

/// The text for people where a configuration cannot be used.
fn refused(text: &str) -> String {
    let error = parse(text, 0).expect_err(text);
    assert_eq!(error.kind(), crate::error::ErrorKind::Settings, "{text}");
    let message = error.message();
    assert!(message.starts_with("The configuration of zones and tripwires cannot be used: "), "{text}: {message}");
    message
}

#[test]
fn a_configuration_has_dl_streamers_words() {
    let text = r#"{
        "zones": [
            {"id": "pathway", "type": "polygon", "points": [{"x": 45, "y": 395}, {"x": 110, "y": 431}, {"x": 445, "y": 323}],
             "track-dwell-time": false, "object-retention": 1.0, "color": {"r": 255, "g": 0, "b": 1}, "thickness": 3},
            {"id": "danger", "type": "circle", "center": {"x": 960, "y": 540}, "radius": 150, "hysteresis": 0.1, "dwell-time": 5,
             "crowd-threshold": 3, "crowd-time": 2.5, "classes": ["person", 2], "inverse": true}
        ],
        "tripwires": [{"id": "entrance", "points": [{"x": 960, "y": 0}, {"x": 960, "y": 1080}], "direction": "forward", "extended": true}],
        "directions": [{"id": "north", "points": [[0, 1], [0, 0]], "mode": "strict"}]
    }"#;
    let config = parse(text, 0).unwrap();
    let [pathway, danger] = &config.zones[..] else { panic!("two zones") };
    assert_eq!(pathway.look, config::BoundaryLook { color: Some([255, 0, 1]), thickness: 3 });
    assert_eq!(
        (pathway.track_dwell_time, pathway.object_retention, pathway.hysteresis),
        (false, 1_000_000_000, 200_000_000)
    );
    assert_eq!((danger.hysteresis, danger.dwell_time), (100_000_000, Some(5_000_000_000)));
    assert_eq!(danger.crowd, Some(config::CrowdConfig { threshold: 3, time: 2_500_000_000 }));
    assert_eq!((&danger.classes.0[..], danger.is_inverse), (&["person".to_string(), "2".to_string()][..], true));
    assert!(
        danger.classes.wants("x", Some(2))
            && danger.classes.wants("person", None)
            && !danger.classes.wants("x", Some(0))
    );
    let entrance = &config.tripwires[0];
    assert_eq!((entrance.wanted, entrance.is_extended), (config::WantedDirection::Forward, true));
    assert_eq!(config.directions[0].motion.min_cosine, 0.8);
}

#[test]
fn a_slip_in_a_configuration_is_named_with_its_place() {
    for (text, parts) in [
        ("", &["neither JSON nor"][..]),
        ("/etc/zones.json", &["neither JSON nor", "config-file"]),
        ("{", &["not JSON", "line 1"]),
        ("{}", &["no zones, no tripwires"]),
        (r#"{"zone": []}"#, &["unknown key \"zone\"", "Write zones"]),
        (r#"{"zones": {}}"#, &["zones is {}", "a list in brackets"]),
        (r#"{"zones": [{"id": "a", "pionts": []}]}"#, &["zones[0] has the unknown key \"pionts\"", "Write points"]),
        (r#"{"zones": [{"id": "a", "colour-of-it": 1}]}"#, &["colour-of-it", "The keys are id, type, points"]),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1,1]], "inverse": true, "inverse": false}]}"#,
            &["zones[0] has the key \"inverse\" twice", "Write it once"],
        ),
        (
            r#"{"tripwires": [{"id": "a", "points": [[0,0],{"x": 1, "y": 1, "x": 2}]}]}"#,
            &["tripwires[0].points[1] has the key \"x\" twice"],
        ),
        (r#"{"zones": [], "tripwires": [], "zones": []}"#, &["it has the key \"zones\" twice"]),
        (r#"{"zones": [{"points": [[0,0],[1,0],[1,1]]}]}"#, &["zones[0] has no id"]),
        (r#"{"zones": [{"id": 7, "points": [[0,0],[1,0],[1,1]]}]}"#, &["zones[0].id is 7", "a text in quotes"]),
        (
            r#"{"zones": [{"id": "a\u0000b", "points": [[0,0],[1,0],[1,1]]}]}"#,
            &["zones[0].id is", "without NUL characters"],
        ),
        (r#"{"zones": [{"id": "", "points": [[0,0],[1,0],[1,1]]}]}"#, &["zones[0] has the id \"\""]),
        (r#"{"zones": [{"id": "a", "points": [[0,0],[1,0]]}]}"#, &["\"a\" has 2 points", "3 to 1024"]),
        (r#"{"zones": [{"id": "a", "points": [[0,0],[1,1],[2,2]]}]}"#, &["on one line"]),
        (r#"{"zones": [{"id": "a", "points": [[0.1,0.3],[0.2,0.6],[0.3,0.9]]}]}"#, &["on one line"]),
        (r#"{"zones": [{"id": "a", "points": [[0,0.1],[0.5,0.2],[1,0.3]]}]}"#, &["on one line"]),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1.001,0],[1,1]]}]}"#,
            &["the zone \"a\" is 1.001", "from 0 to 1, or pixels"],
        ),
        (
            r#"{"zones": [{"id": "a", "type": "circle", "center": [0.5,0.5], "radius": 1.5}]}"#,
            &["the zone \"a\" is 1.5", "from 0 to 1, or pixels"],
        ),
        (r#"{"tripwires": [{"id": "a", "points": [[0.5,0],[0.5,1.1]]}]}"#, &["the tripwire \"a\" is 1.1"]),
        (
            r#"{"tripwires": [{"id": "a", "extended": true, "points": [[0.5,-0.1],[0.5,1.1]]}]}"#,
            &["the tripwire \"a\" is 1.1", "from 0 to 1, or pixels"],
        ),
        (
            r#"{"tripwires": [{"id": "a", "points": [[-1.5,0.5],[1,0.5]]}]}"#,
            &["the least number of the tripwire \"a\" is -1.5"],
        ),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1,"b"]]}]}"#,
            &["zones[0].points[2][1] is \"b\"", "a number"],
        ),
        (r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1]]}]}"#, &["zones[0].points[2] is [1]", "a point like"]),
        (r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],{"x": 1}]}]}"#, &["zones[0].points[2] has no y"]),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1e9,1]]}]}"#,
            &["a point of the zone \"a\"", "parts of the frame"],
        ),
        (
            r#"{"zones": [{"id": "a", "type": "square", "points": []}]}"#,
            &["zones[0].type is \"square\"", "polygon or circle"],
        ),
        (r#"{"zones": [{"id": "a", "type": "circle", "radius": 3}]}"#, &["zones[0] has no center"]),
        (
            r#"{"zones": [{"id": "a", "type": "circle", "center": [1,1], "radius": 0}]}"#,
            &["the radius of the zone \"a\" is 0"],
        ),
        (
            r#"{"zones": [{"id": "a", "type": "circle", "points": []}]}"#,
            &["has points, which is a key of polygons only"],
        ),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1,1]], "hysteresis": -1}]}"#,
            &["zones[0].hysteresis is -1", "seconds"],
        ),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1,1]], "crowd-threshold": 0}]}"#,
            &["crowd-threshold is 0", "from 1"],
        ),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1,1]], "crowd-time": 1}]}"#,
            &["crowd-time", "with crowd-threshold"],
        ),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1,1]], "classes": [null]}]}"#,
            &["zones[0].classes[0] is null"],
        ),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1,1]], "color": {"r": 256, "g": 0, "b": 0}}]}"#,
            &["color.r is 256"],
        ),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1,1]], "inverse": 1}]}"#,
            &["inverse is 1", "true or false"],
        ),
        (
            r#"{"tripwires": [{"id": "a", "points": [[0,0]]}]}"#,
            &["tripwires[0].points has 1 points", "Write two points"],
        ),
        (
            r#"{"tripwires": [{"id": "a", "points": [[3,4],[3,4]]}]}"#,
            &["both points of the tripwire \"a\" are the same"],
        ),
        (
            r#"{"tripwires": [{"id": "a", "points": [[0,0],[1,1]], "direction": "left"}]}"#,
            &["both or forward or backward"],
        ),
        (
            r#"{"tripwires": [{"id": "a", "points": [[0,0],[1,1]]}, {"id": "a", "points": [[0,0],[1,1]]}]}"#,
            &["two of the tripwires have the id \"a\""],
        ),
        (
            r#"{"directions": [{"id": "a", "points": [[0,0],[1,1]], "mode": "exact"}]}"#,
            &["loose or balanced or strict"],
        ),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1,1]], "text-matches": ["AB"]}]}"#,
            &["zones[0].text-matches is [\"AB\"]", "a text in quotes"],
        ),
        (r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1,1]], "text-match": "AB"}]}"#, &["Write text-matches"]),
        (
            r#"{"zones": [{"id": "a", "points": [[0,0],[1,0],[1,1]], "text-matches": "^(AB"}]}"#,
            &["zones[0].text-matches is \"^(AB\": ", "without closing", "Write a regular expression such as"],
        ),
        (
            r#"{"tripwires": [{"id": "a", "points": [[0,0],[1,1]], "text-matches": ""}]}"#,
            &["tripwires[0].text-matches is \"\": it has 0 bytes", "leave it out"],
        ),
        (
            r#"{"tripwires": [{"id": "a", "points": [[0,0],[1,1]], "text-matches": "(?:[A-Z]{900}){900}"}]}"#,
            &["tripwires[0].text-matches", "size limit", "small numbers of repetitions"],
        ),
        (
            r#"{"directions": [{"id": "a", "points": [[0,0],[1,1]], "text-matches": "(?!AB)"}]}"#,
            &["directions[0].text-matches", "look-around"],
        ),
        (r#"{"frame-width": 100, "zones": []}"#, &["only one of frame-width and frame-height"]),
        (r#"{"frame-width": 0, "frame-height": 5}"#, &["frame-width is 0"]),
        ("[property]\n", &["has no config-width"]),
        ("[propertys]\n", &["line 1", "[propertys] is unknown", "Write [property]"]),
        ("[property]\nconfig-width=10\nconfig-height=10\n", &["nothing that is enabled for stream 0"]),
        (
            "[property]\nconfig-width=10\nconfig-height=10\n[roi-filter-stream-0]\n",
            &["line 4", "Write [roi-filtering-stream-0]"],
        ),
        ("# x\nconfig-width=10\n", &["line 2", "before the first group"]),
        ("[property]\nconfig-width=10\nconfig-height=ten\n", &["line 3", "config-height is \"ten\""]),
        (
            "[property]\nconfig-width=10\nconfig-height=10\n[line-crossing-stream-0]\nenable=1\nline-crossing-a=1;2;3\n",
            &["line 6", "3 numbers", "4 points"],
        ),
        (
            "[property]\nconfig-width=10\nconfig-height=10\n[line-crossing-stream-0]\nenabled=1\n",
            &["line 5", "\"enabled\" is unknown", "Write enable"],
        ),
        ("[property]\nconfig-width=10\nconfig-height=10\n[overcrowding-stream-0]\nenable=1\n", &["has no roi-"]),
    ] {
        let message = refused(text);
        assert!(parts.iter().all(|part| message.contains(part)), "{text}\n{message}");
    }
}

/// A configuration of zones that have these patterns.
fn patterns(patterns: &[String]) -> String {
    let zone = |(number, pattern): (usize, &String)| {
        format!("{{\"id\": \"{number}\", \"points\": [[0,0],[1,0],[1,1]], \"text-matches\": \"{pattern}\"}}")
    };
    let zones: Vec<String> = patterns.iter().enumerate().map(zone).collect();
    format!("{{\"zones\": [{}]}}", zones.join(", "))
}

#[test]
fn patterns_of_texts_have_limits() {
    let different = |count: usize| (0..count).map(|number| format!("^{number}$")).collect::<Vec<_>>();
    for (found, part) in [
        (vec!["A".repeat(text::MAX_PATTERN + 1)], "it has 4097 bytes"),
        (vec!["(A)".repeat(text::MAX_GROUPS + 1)], "it has 17 groups"),
        (different(text::MAX_PATTERNS + 1), "zones[64].text-matches is \"^64$\": there are 64 other ones"),
    ] {
        let message = refused(&patterns(&found));
        assert!(message.contains(part) && message.contains("Write "), "{message}");
    }
    assert_eq!(parse(&patterns(&different(text::MAX_PATTERNS)), 0).unwrap().text_patterns.len(), text::MAX_PATTERNS);
    // Number plates up to the limit.
    let plates: Vec<String> = (0..400).map(|number| format!("AB {number:06}")).collect();
    for case in ["", "(?i)"] {
        let list = format!("{case}^({})$", plates.join("|"));
        assert!((3900..=text::MAX_PATTERN).contains(&list.len()), "{}", list.len());
        let config = parse(&patterns(&[list]), 0).unwrap();
        let matches = |text: &str| config.text_patterns[0].matches(text);
        assert!(matches("AB 000399") && !matches("AB 000400") && matches("ab 000399") == (case == "(?i)"));
    }
}

#[test]
fn the_same_pattern_is_compared_once() {
    let config = parse(&patterns(&["A", "B", "A"].map(String::from)), 0).unwrap();
    let numbers: Vec<_> = config.zones.iter().map(|zone| zone.text_matches).collect();
    assert_eq!(numbers, [Some(0), Some(1), Some(0)]);
    assert_eq!(config.text_patterns.iter().map(text::TextPattern::as_str).collect::<Vec<_>>(), ["A", "B"]);
}

const DEEPSTREAM: &str = "# A file as it is.
[property]
enable=1
config-width=1920
config-height=1080
osd-mode=2
display-font-size=12

[roi-filtering-stream-0]
enable=1
roi-RF=295;643;579;634;642;913;56;828
inverse-roi=0
class-id=-1

[overcrowding-stream-0]
enable=1
roi-RF=295;643;579;634;642;913;56;828;
object-threshold=3
time-threshold=2000
class-id=0;2

[line-crossing-stream-0]
enable=1
line-crossing-Exit=789;672;1084;900;851;773;1203;732
class-id=0
extended=0
mode=balanced

[direction-detection-stream-0]
enable=0
direction-South=284;840;360;662;
class-id=0

[direction-detection-stream-2]
enable=1
direction-South=284;840;360;662;
direction-North=1106;622;1312;701;
";

#[test]
fn deepstreams_file_is_read_as_it_is() {
    let config = parse(DEEPSTREAM, 0).unwrap();
    assert_eq!(config.frame, Some((1920, 1080)));
    let zones: Vec<_> = config.zones.iter().map(|zone| zone.name.as_str()).collect();
    assert_eq!(zones, ["RF", "RF crowd"]);
    assert_eq!(config.zones[1].crowd, Some(config::CrowdConfig { threshold: 3, time: 2_000_000_000 }));
    assert_eq!(config.zones[1].classes.0, ["0", "2"]);
    assert!(config.zones[0].classes.0.is_empty() && config.directions.is_empty());
    let exit = &config.tripwires[0];
    assert_eq!(exit.points, [[851.0, 773.0], [1203.0, 732.0]]);
    assert_eq!((exit.wanted, exit.is_extended), (config::WantedDirection::AlongMotion, false));
    assert_eq!(exit.motion.unwrap().min_cosine, 0.5);
    assert_eq!(parse(DEEPSTREAM, 2).unwrap().directions.len(), 2);
    let message = parse(DEEPSTREAM, 1).unwrap_err().message();
    assert!(message.contains("stream 1") && message.contains("0, 2"), "{message}");
}

/// Who draws zones by hand begins them outside of the frame.
#[test]
fn parts_of_the_frame_may_be_a_little_outside() {
    let config = parse(r#"{"zones": [{"id": "a", "points": [[-0.25,0],[0.5,0],[0.5,1],[-0.25,1]]}]}"#, 0).unwrap();
    let corners = config.area(&config.zones[0], SIZE).corners();
    assert_eq!(corners, [[-50.0, 0.0], [100.0, 0.0], [100.0, 100.0], [-50.0, 100.0]]);
    // All numbers are pixels of a frame that is given.
    let pixels = r#"{"frame-width": 2, "frame-height": 2, "zones": [{"id": "a", "points": [[0,0],[1.5,0],[1.5,2]]}]}"#;
    assert_eq!(parse(pixels, 0).unwrap().frame, Some((2, 2)));
}

/// Down and to the right counts, the other way does not.
#[test]
fn deepstreams_lines_count_along_their_direction() {
    for (way, mode, expected) in [(1.0, "loose", 1), (-1.0, "loose", 0), (1.0, "strict", 1)] {
        let text = DEEPSTREAM.replace("mode=balanced", &format!("mode={mode}"));
        let mut analytics = Analytics::new(parse(&text, 0).unwrap());
        analytics.set_size((960, 540));
        for at in -30i32..60 {
            // On the frame of half the size, along the direction of 295 and 228 pixels.
            let by = way * at.min(30) as f32 * 3.0;
            let (x, y) = (514.0 + by * 0.79, 376.0 + by * 0.61);
            let bbox = BBox::new(x - 10.0, y - 40.0, x + 10.0, y);
            analytics.update(&AnalyticsOptions::default(), [input(bbox)].into_iter(), (at + 30) as u64 * FRAME);
        }
        let total = analytics.tripwires[0].total();
        assert_eq!(total.forward + total.backward, expected, "{way} {mode}");
    }
    // Across the direction is too far from it for strict.
    let text = DEEPSTREAM.replace("mode=balanced", "mode=strict");
    let mut analytics = Analytics::new(parse(&text, 0).unwrap());
    analytics.set_size((1920, 1080));
    for at in 0..90 {
        let (x, y) = (1100.0 - at.min(60) as f32 * 2.0, 700.0 + at.min(60) as f32 * 2.0);
        let bbox = BBox::new(x - 10.0, y - 40.0, x + 10.0, y);
        analytics.update(&AnalyticsOptions::default(), [input(bbox)].into_iter(), at * FRAME);
    }
    assert_eq!(analytics.tripwires[0].total(), tally::CrossingCount::default());
}

/// Cut, doubled and random texts: each is an error of one line or a configuration, and nothing else.
#[test]
fn any_text_is_a_configuration_or_an_error() {
    let seeds = [ROOM, DOOR, DEEPSTREAM, GATE];
    let mut state = 7u64;
    let mut random = move |limit: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % limit.max(1)
    };
    for round in 0..3000 {
        let seed = seeds[round % seeds.len()];
        let mut bytes = seed.as_bytes().to_vec();
        for _ in 0..1 + random(6) {
            let at = random(bytes.len());
            match random(5) {
                0 => bytes.truncate(at),
                1 => bytes[at] = random(256) as u8,
                2 => bytes.insert(at, b"[]{}\":;,-=09e\n"[random(14)]),
                3 => drop(bytes.remove(at)),
                _ => {
                    let part = bytes[at..].to_vec();
                    bytes.extend(part);
                }
            }
            if bytes.is_empty() {
                bytes.push(b'{');
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        match parse(&text, 0) {
            Ok(config) => {
                let mut analytics = Analytics::new(config);
                analytics.set_size(SIZE);
                let attributes = [plate("AB12")];
                let seen = AnalyticsInput { attributes: &attributes, ..input(BBox::new(90.0, 30.0, 110.0, 50.0)) };
                analytics.update(&AnalyticsOptions::default(), [seen].into_iter(), 0);
            }
            Err(_) => drop(refused(&text)),
        }
    }
    for depth in [10, 100, 100_000] {
        refused(&format!("{{\"zones\": {}", "[".repeat(depth)));
    }
}
