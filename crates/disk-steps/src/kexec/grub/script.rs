// SPDX-License-Identifier: Apache-2.0
//! The words and blocks of a GRUB script.

/// A command with its words, and the block in braces behind it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Command {
    pub(super) words: Vec<Word>,
    pub(super) body: Vec<Command>,
}

/// A word, in pieces: text, and names of variables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Word(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(String),
}

impl Word {
    /// The word with its variables replaced.
    pub(super) fn expand(&self, value: &mut dyn FnMut(&str) -> String) -> String {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Variable(name) => value(name),
            })
            .collect()
    }

    /// The word without its variables.
    pub(super) fn text(&self) -> String {
        self.expand(&mut |_| String::new())
    }

    /// The names of its variables.
    pub(super) fn variables(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Variable(name) => Some(name.clone()),
            Piece::Text(_) => None,
        })
    }

    fn push(&mut self, letter: char) {
        match self.0.last_mut() {
            Some(Piece::Text(text)) => text.push(letter),
            Some(Piece::Variable(_)) | None => self.0.push(Piece::Text(letter.to_string())),
        }
    }
}

/// A text in which only variables mean anything.
pub(super) fn expandable(text: &str) -> Word {
    let mut word = Word::default();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '$' => variable(&mut letters, &mut word),
            _ => word.push(letter),
        }
    }
    word
}

enum Token {
    Word(Word),
    /// A line's end, or a semicolon.
    End,
    Open,
    Close,
}

/// Blocks are not deeper than this.
const DEEPEST: usize = 32;

/// Reads a script.
pub(super) fn parse(text: &str) -> Result<Vec<Command>, String> {
    let mut tokens = tokens(text)?.into_iter();
    let commands = block(&mut tokens, DEEPEST)?;
    Ok(commands)
}

fn block(tokens: &mut std::vec::IntoIter<Token>, depth: usize) -> Result<Vec<Command>, String> {
    if depth == 0 {
        return Err("its blocks are too deep".to_owned());
    }
    let mut commands = Vec::new();
    let mut command = Command::default();
    while let Some(token) = tokens.next() {
        match token {
            Token::Word(word) => {
                // These stand before another command.
                let keyword = command.words.is_empty()
                    && matches!(word.text().as_str(), "then" | "do" | "else");
                let is_else = keyword && word.text() == "else";
                if !keyword || is_else {
                    command.words.push(word);
                }
                if is_else {
                    commands.push(std::mem::take(&mut command));
                }
            }
            Token::End => commands.push(std::mem::take(&mut command)),
            Token::Open => {
                command.body = block(tokens, depth - 1)?;
                commands.push(std::mem::take(&mut command));
            }
            Token::Close => break,
        }
    }
    commands.push(command);
    // A function is only a block that somebody may call.
    commands.retain(|it| it.words.first().is_some_and(|word| word.text() != "function"));
    Ok(commands)
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut word: Option<Word> = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('\n') | None => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => word.push(letter),
                        None => return Err("a quote does not end".to_owned()),
                    }
                }
            }
            '"' => quoted(&mut letters, word.get_or_insert_default())?,
            '$' => variable(&mut letters, word.get_or_insert_default()),
            '#' if word.is_none() => {
                while letters.peek().is_some_and(|letter| *letter != '\n') {
                    letters.next();
                }
            }
            '{' if word.is_none() => tokens.push(Token::Open),
            '}' if word.is_none() => tokens.push(Token::Close),
            '\n' | ';' => {
                tokens.extend(word.take().map(Token::Word));
                tokens.push(Token::End);
            }
            letter if letter.is_whitespace() => tokens.extend(word.take().map(Token::Word)),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    tokens.extend(word.take().map(Token::Word));
    Ok(tokens)
}

fn quoted(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    word: &mut Word,
) -> Result<(), String> {
    loop {
        match letters.next() {
            Some('"') => return Ok(()),
            Some('$') => variable(letters, word),
            Some('\\') => match letters.next() {
                Some(special @ ('"' | '\\' | '$')) => word.push(special),
                Some(other) => {
                    word.push('\\');
                    word.push(other);
                }
                None => return Err("a quote does not end".to_owned()),
            },
            Some(letter) => word.push(letter),
            None => return Err("a quote does not end".to_owned()),
        }
    }
}

fn variable(letters: &mut std::iter::Peekable<std::str::Chars<'_>>, word: &mut Word) {
    let braced = letters.next_if_eq(&'{').is_some();
    let mut name = String::new();
    while let Some(letter) =
        letters.next_if(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
    {
        name.push(letter);
    }
    if braced {
        letters.next_if_eq(&'}');
    }
    if name.is_empty() {
        word.push('$');
    } else {
        word.0.push(Piece::Variable(name));
    }
}
