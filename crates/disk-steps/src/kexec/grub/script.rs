// SPDX-License-Identifier: Apache-2.0
//! Tokenizer and block parser of GRUB scripts.

/// A command with its words and the block in braces after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct GrubCommand {
    pub(super) words: Vec<GrubWord>,
    pub(super) body: Vec<GrubCommand>,
}

/// A word, consisting of text and variables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct GrubWord(Vec<GrubWordPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum GrubWordPart {
    Text(String),
    Variable(String),
}

impl GrubWord {
    /// Returns the word with its variables replaced.
    pub(super) fn expand(&self, value: &mut dyn FnMut(&str) -> String) -> String {
        self.0
            .iter()
            .map(|part| match part {
                GrubWordPart::Text(text) => text.clone(),
                GrubWordPart::Variable(name) => value(name),
            })
            .collect()
    }

    /// Returns the word without its variables.
    pub(super) fn text(&self) -> String {
        self.expand(&mut |_| String::new())
    }

    /// Returns the names of its variables.
    pub(super) fn variables(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|part| match part {
            GrubWordPart::Variable(name) => Some(name.clone()),
            GrubWordPart::Text(_) => None,
        })
    }

    fn push(&mut self, character: char) {
        match self.0.last_mut() {
            Some(GrubWordPart::Text(text)) => text.push(character),
            Some(GrubWordPart::Variable(_)) | None => {
                self.0.push(GrubWordPart::Text(character.to_string()))
            }
        }
    }
}

/// Parses a text in which only variables are special.
pub(super) fn parse_word(text: &str) -> GrubWord {
    let mut word = GrubWord::default();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '$' => parse_variable(&mut characters, &mut word),
            _ => word.push(character),
        }
    }
    word
}

enum GrubToken {
    Word(GrubWord),
    /// End of a line, or a semicolon.
    End,
    Open,
    Close,
}

/// Maximum nesting of blocks.
const MAX_DEPTH: usize = 32;

/// Parses a script.
pub(super) fn parse(text: &str) -> Result<Vec<GrubCommand>, String> {
    let mut tokens = tokenize(text)?.into_iter();
    let commands = parse_block(&mut tokens, MAX_DEPTH)?;
    Ok(commands)
}

fn parse_block(
    tokens: &mut std::vec::IntoIter<GrubToken>,
    depth: usize,
) -> Result<Vec<GrubCommand>, String> {
    if depth == 0 {
        return Err("its blocks are too deep".to_owned());
    }
    let mut commands = Vec::new();
    let mut command = GrubCommand::default();
    while let Some(token) = tokens.next() {
        match token {
            GrubToken::Word(word) => {
                // These keywords precede another command.
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
            GrubToken::End => commands.push(std::mem::take(&mut command)),
            GrubToken::Open => {
                command.body = parse_block(tokens, depth - 1)?;
                commands.push(std::mem::take(&mut command));
            }
            GrubToken::Close => break,
        }
    }
    commands.push(command);
    // Functions are not called, so their definitions are dropped.
    commands.retain(|it| it.words.first().is_some_and(|word| word.text() != "function"));
    Ok(commands)
}

fn tokenize(text: &str) -> Result<Vec<GrubToken>, String> {
    let mut tokens = Vec::new();
    let mut word: Option<GrubWord> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('\n') | None => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some('\'') => break,
                        Some(character) => word.push(character),
                        None => return Err("a quote does not end".to_owned()),
                    }
                }
            }
            '"' => parse_quoted(&mut characters, word.get_or_insert_default())?,
            '$' => parse_variable(&mut characters, word.get_or_insert_default()),
            '#' if word.is_none() => {
                while characters.peek().is_some_and(|character| *character != '\n') {
                    characters.next();
                }
            }
            '{' if word.is_none() => tokens.push(GrubToken::Open),
            '}' if word.is_none() => tokens.push(GrubToken::Close),
            '\n' | ';' => {
                tokens.extend(word.take().map(GrubToken::Word));
                tokens.push(GrubToken::End);
            }
            character if character.is_whitespace() => {
                tokens.extend(word.take().map(GrubToken::Word))
            }
            character => word.get_or_insert_default().push(character),
        }
    }
    tokens.extend(word.take().map(GrubToken::Word));
    Ok(tokens)
}

fn parse_quoted(
    characters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    word: &mut GrubWord,
) -> Result<(), String> {
    loop {
        match characters.next() {
            Some('"') => return Ok(()),
            Some('$') => parse_variable(characters, word),
            Some('\\') => match characters.next() {
                Some(special @ ('"' | '\\' | '$')) => word.push(special),
                Some(other) => {
                    word.push('\\');
                    word.push(other);
                }
                None => return Err("a quote does not end".to_owned()),
            },
            Some(character) => word.push(character),
            None => return Err("a quote does not end".to_owned()),
        }
    }
}

fn parse_variable(characters: &mut std::iter::Peekable<std::str::Chars<'_>>, word: &mut GrubWord) {
    let braced = characters.next_if_eq(&'{').is_some();
    let mut name = String::new();
    while let Some(character) =
        characters.next_if(|character| character.is_ascii_alphanumeric() || *character == '_')
    {
        name.push(character);
    }
    if braced {
        characters.next_if_eq(&'}');
    }
    if name.is_empty() {
        word.push('$');
    } else {
        word.0.push(GrubWordPart::Variable(name));
    }
}
