//! Text that another host, user or file supplies, as it may be shown on a terminal, in a log or in JSON.
//!
//! Terminals obey escape sequences, bidirectional controls reorder what a person reads, and invisible characters make
//! two names look alike. Every function here replaces such characters with a visible escape, and leaves all other text,
//! of any language, as it is.

use std::borrow::Cow;
use std::fmt::Write as _;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Longest text of the other end's that an error or a log shows, bytes; the rest is cut.
pub const MAX_PEER_TEXT: usize = 2048;
/// Longest line of a server's log, bytes, without the newline; the rest is cut.
pub const MAX_LOG_LINE: usize = 4096;

/// Whether a character must not be shown as it is: it controls the terminal, changes the order of the text around it,
/// is invisible, or has no agreed meaning.
///
/// These are the Unicode general categories Cc (controls), Cf (format: zero-width, bidirectional and tag characters),
/// Co (private use), Cn (unassigned), Zl and Zp (line and paragraph separators), and the characters of other
/// categories that Unicode calls default-ignorable (`DerivedCoreProperties.txt`): fillers, joiners and variation
/// selectors, which are displayed as nothing.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, Surrogate, Unassigned};
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let ignorable = matches!(
        c,
        '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}'
    );
    let category = c.general_category();
    ignorable
        || matches!(
            category,
            Control | Format | LineSeparator | ParagraphSeparator | PrivateUse | Surrogate | Unassigned
        )
}

/// Pieces of bytes: characters, and bytes that are not UTF-8.
fn pieces(bytes: &[u8]) -> impl Iterator<Item = Result<char, u8>> + '_ {
    bytes.utf8_chunks().flat_map(|chunk| chunk.valid().chars().map(Ok).chain(chunk.invalid().iter().copied().map(Err)))
}

/// A file name on one line, quoted as shells quote it (`$'a\nb'`) if it has unsafe characters or bytes that are not
/// UTF-8: a shell reads the quoted form back as the same name. A name that looks quoted is quoted too, so that no two
/// names look alike.
#[must_use]
pub fn printable(name: &[u8]) -> String {
    let plain = std::str::from_utf8(name).ok().filter(|text| !name.starts_with(b"$'") && !text.chars().any(is_unsafe));
    if let Some(text) = plain {
        return text.to_owned();
    }
    let mut quoted = String::from("$'");
    let hex = |quoted: &mut String, byte: u8| {
        // Writing to a string does not fail.
        let _ = write!(quoted, "\\x{byte:02x}");
    };
    for piece in pieces(name) {
        match piece {
            Ok(c) if c.is_ascii() => quoted.extend(std::ascii::escape_default(c as u8).map(char::from)),
            // Bytes, since `\u` depends on the shell's locale.
            Ok(c) if is_unsafe(c) => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| hex(&mut quoted, byte)),
            Ok(c) => quoted.push(c),
            Err(byte) => hex(&mut quoted, byte),
        }
    }
    quoted.push('\'');
    quoted
}

/// Any text on one line: unsafe characters and bytes that are not UTF-8 are escaped where they stand (`\n`, `\x1b`,
/// `\u{202e}`), all else is left as it is. Text that went through this once does not change when it does again.
#[must_use]
pub fn one_line(text: &[u8]) -> String {
    escaped(text, |_| false)
}

/// Text of several lines: as [`one_line`], but newlines and tabs stay.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    let stays = |c| matches!(c, '\n' | '\t');
    if text.chars().any(|c| is_unsafe(c) && !stays(c)) {
        Cow::Owned(escaped(text.as_bytes(), stays))
    } else {
        Cow::Borrowed(text)
    }
}

fn escaped(text: &[u8], stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for piece in pieces(text) {
        // Writing to a string does not fail.
        let _ = match piece {
            Ok(c) if stays(c) || !is_unsafe(c) => {
                shown.push(c);
                Ok(())
            }
            Ok(c @ ('\n' | '\r' | '\t')) => write!(shown, "{}", c.escape_default()),
            Ok(c) if (c as u32) < 0x100 => write!(shown, "\\x{:02x}", c as u32),
            Ok(c) => write!(shown, "\\u{{{:x}}}", c as u32),
            Err(byte) => write!(shown, "\\x{byte:02x}"),
        };
    }
    shown
}

/// JSON in which no string has unsafe characters: each becomes `\uXXXX`, which every JSON parser reads back as the
/// same character. Newlines stay: JSON has none in strings, and NDJSON needs them between values.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    let bad = |c: char| is_unsafe(c) && !matches!(c, '\n' | '\t');
    if !text.chars().any(bad) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if bad(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Cuts a text of more than `most` bytes, at a character, and says in it how many bytes are missing.
#[must_use]
pub fn cut(mut text: String, most: usize) -> String {
    /// Room for the mark: ` [18446744073709551615 more bytes]`.
    const MARK: usize = 34;
    if text.len() <= most {
        return text;
    }
    let mut end = most.saturating_sub(MARK);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let missing = text.len() - end;
    text.truncate(end);
    let _ = write!(text, " [{missing} more bytes]");
    text
}

/// Prose of the other end's (a reason, a version, a line of ssh's), on one line of at most [`MAX_PEER_TEXT`] bytes.
#[must_use]
pub fn from_peer(text: &str) -> String {
    cut(one_line(text.as_bytes()), MAX_PEER_TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each kind that a hostile host would choose.
    const HOSTILE: [char; 22] = [
        '\0',
        '\x07',
        '\x1b',
        '\x7f',
        '\u{9b}',
        '\u{ad}',
        '\u{34f}',
        '\u{61c}',
        '\u{180e}',
        '\u{200b}',
        '\u{200f}',
        '\u{2028}',
        '\u{202e}',
        '\u{2066}',
        '\u{2069}',
        '\u{3164}',
        '\u{e000}',
        '\u{fe0f}',
        '\u{feff}',
        '\u{fff9}',
        '\u{378}',
        '\u{e0041}',
    ];

    #[test]
    fn no_hostile_character_passes() {
        for c in HOSTILE {
            assert!(is_unsafe(c), "{c:?}");
            let text = format!("a{c}b");
            for shown in [printable(text.as_bytes()), one_line(text.as_bytes()), lines(&text).into_owned()] {
                assert!(!shown.chars().any(is_unsafe), "{c:?}: {shown:?}");
            }
            let quoted = serde_json::to_string(&text).unwrap();
            let shown = json(&quoted);
            assert!(!shown.chars().any(is_unsafe), "{c:?}: {shown:?}");
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }
    }

    #[test]
    fn text_of_any_language_stays() {
        for text in ["grün", "データ", "данные", "بيانات", "נתונים", "e\u{301}", "🚀", "a b", "x\\y"]
        {
            assert_eq!(printable(text.as_bytes()), text);
            assert_eq!(one_line(text.as_bytes()), text);
            assert!(matches!(json(text), Cow::Borrowed(_)));
        }
    }

    #[test]
    fn a_shell_reads_a_quoted_name_back() {
        let names: [&[u8]; 5] = [b"a\nb'c\\d", b"$'a'", "x\u{202e}y ü".as_bytes(), b"\xff1 \xe2\x82", b"\x1b]0;t\x07"];
        for name in names {
            let script = format!("printf %s {}", printable(name));
            let read = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(read.stdout, name, "{script}");
        }
    }

    #[test]
    fn escaping_twice_changes_nothing() {
        let once = one_line(b"left: \x1b[31m\xff\n $'a\\nb'");
        assert_eq!(once, "left: \\x1b[31m\\xff\\n $'a\\nb'");
        assert_eq!(one_line(once.as_bytes()), once);
    }

    #[test]
    fn long_text_is_cut_with_a_mark() {
        let text = cut("ü".repeat(10_000), 100);
        assert!(text.len() <= 100 && text.ends_with(" more bytes]"), "{text}");
        assert_eq!(cut("short".into(), 100), "short");
        assert!(from_peer(&"\x1b".repeat(1 << 20)).len() <= MAX_PEER_TEXT);
    }
}
