// SPDX-License-Identifier: Apache-2.0
//! The client against servers of a few lines, which answer what the test wants.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use super::*;
use crate::error::Kind;
use crate::target::{Flags, Surroundings};

/// One request as the server saw it: its first line, and headers in lower case.
struct Asked {
    line: String,
    headers: Vec<String>,
}

impl Asked {
    fn header(&self, name: &str) -> &str {
        let prefix = format!("{name}: ");
        self.headers.iter().find_map(|header| header.strip_prefix(&prefix)).unwrap_or_default()
    }
}

/// A server that answers by `answer`: a status, headers and a body. Gives its address and what it was asked.
fn server(
    answer: impl Fn(&Asked, &str) -> (u16, &'static str, String) + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (log, base) = (asked.clone(), url.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                match line.trim_end() {
                    "" => break,
                    line => lines.push(line.to_owned()),
                }
            }
            if lines.is_empty() {
                continue;
            }
            let line = lines.remove(0).trim_end_matches(" HTTP/1.1").to_owned();
            let headers = lines.iter().map(|line| {
                let (name, value) = line.split_once(": ").unwrap_or((line, ""));
                format!("{}: {value}", name.to_lowercase())
            });
            let asked = Asked { line, headers: headers.collect() };
            let length = asked.header("content-length").parse().unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            log.lock().unwrap().push(asked.line.clone());
            let (status, headers, body) = answer(&asked, &base);
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
                body.len()
            );
            stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(body.as_bytes()))
                .unwrap();
        }
    });
    (url, asked)
}

fn api_at(url: &str) -> Api {
    Api::new(Target::at(url, None, None, "a test").unwrap()).unwrap()
}

#[tokio::test]
async fn an_older_dialect_is_spoken_with_an_older_server() {
    let (url, asked) = server(|asked, _| match asked.header("x-openstack-ironic-api-version") {
        "1.61" => (200, "", r#"{"name": "n"}"#.to_owned()),
        _ => (
            406,
            "X-OpenStack-Ironic-API-Minimum-Version: 1.1\r\nX-OpenStack-Ironic-API-Maximum-Version: 1.61\r\n",
            String::new(),
        ),
    });
    let api = api_at(&url);
    assert_eq!(api.get("/v1/nodes/n").await.unwrap()["name"], "n");
    assert_eq!(api.version(), Version(61));
    api.get("/v1/nodes/n").await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 3, "what was learnt is remembered");
}

#[tokio::test]
async fn lists_are_read_to_their_end() {
    let (url, asked) = server(|asked, base| {
        let page = match asked.line.as_str() {
            "GET /v1/nodes?owner=a&limit=1000" => {
                // As behind a proxy: the host of the link cannot be reached.
                r#"{"nodes": [1, 2], "next": "http://inside/v1/nodes?limit=2&marker=2"}"#.to_owned()
            }
            // What the link says of the filters is not relied on: a stock Ironic leaves them out.
            "GET /v1/nodes?owner=a&limit=1000&marker=2" => {
                format!(r#"{{"nodes": [3], "next": "{base}/v1/nodes?limit=2&owner=b&marker=3"}}"#)
            }
            _ => r#"{"nodes": []}"#.to_owned(),
        };
        (200, "", page)
    });
    let query = Query::new().with("owner", "a");
    let nodes = api_at(&url).list("/v1/nodes", "nodes", &query).await.unwrap();
    assert_eq!(nodes, [1, 2, 3]);
    assert_eq!(
        *asked.lock().unwrap(),
        [
            "GET /v1/nodes?owner=a&limit=1000",
            "GET /v1/nodes?owner=a&limit=1000&marker=2",
            "GET /v1/nodes?owner=a&limit=1000&marker=3",
        ]
    );
}

#[tokio::test]
async fn a_token_that_expired_is_renewed() {
    let turns = Mutex::new(0);
    let (url, asked) = server(move |asked, base| {
        let mut turns = turns.lock().unwrap();
        if asked.line == "POST /v3/auth/tokens" {
            *turns += 1;
            let token =
                if *turns == 1 { "X-Subject-Token: old\r\n" } else { "X-Subject-Token: new\r\n" };
            let catalogue = format!(
                r#"{{"token": {{"catalog": [{{"type": "baremetal", "endpoints":
                   [{{"interface": "public", "url": "{base}/baremetal"}}]}}]}}}}"#
            );
            return (201, token, catalogue);
        }
        match (asked.header("x-auth-token"), asked.line.as_str()) {
            ("old", "GET /baremetal/v1/before") | ("new", "GET /baremetal/v1/after") => {
                (200, "", "{}".to_owned())
            }
            _ => (401, "", r#"{"error": {"message": "expired"}}"#.to_owned()),
        }
    });
    let variables = [("OS_AUTH_URL", url.as_str()), ("OS_TOKEN", "t"), ("OS_PROJECT_ID", "p")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let surroundings = Surroundings { variables: variables.into(), ..Surroundings::default() };
    let api = Api::new(Target::find(&Flags::default(), &surroundings).unwrap()).unwrap();
    api.get("/v1/before").await.unwrap();
    api.get("/v1/after").await.unwrap();
    assert_eq!(
        *asked.lock().unwrap(),
        [
            "POST /v3/auth/tokens",
            "GET /baremetal/v1/before",
            "GET /baremetal/v1/after",
            "POST /v3/auth/tokens",
            "GET /baremetal/v1/after",
        ]
    );
    // A token that is refused although it is new is not tried for ever.
    assert_eq!(api.get("/v1/forbidden").await.unwrap_err().kind(), Kind::NotAuthorised);
}

/// Requests that are under way together when their token expires.
#[tokio::test]
async fn one_signs_in_for_all() {
    const TOGETHER: usize = 8;
    let (is_expired, tokens) = (Arc::new(Mutex::new(false)), Mutex::new(0));
    let expire = is_expired.clone();
    let (url, asked) = server(move |asked, base| {
        if asked.line == "POST /v3/auth/tokens" {
            *tokens.lock().unwrap() += 1;
            let token = if *tokens.lock().unwrap() == 1 {
                "X-Subject-Token: old\r\n"
            } else {
                "X-Subject-Token: new\r\n"
            };
            let catalogue = format!(
                r#"{{"token": {{"catalog": [{{"type": "baremetal", "endpoints":
                   [{{"interface": "public", "url": "{base}"}}]}}]}}}}"#
            );
            return (201, token, catalogue);
        }
        match (asked.header("x-auth-token"), *is_expired.lock().unwrap()) {
            ("old", true) => (401, "", r#"{"error": {"message": "expired"}}"#.to_owned()),
            _ => (200, "", "{}".to_owned()),
        }
    });
    let variables = [("OS_AUTH_URL", url.as_str()), ("OS_TOKEN", "t"), ("OS_PROJECT_ID", "p")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let surroundings = Surroundings { variables: variables.into(), ..Surroundings::default() };
    let api = Api::new(Target::find(&Flags::default(), &surroundings).unwrap()).unwrap();
    let api = Arc::new(api);
    api.get("/v1/before").await.unwrap();
    *expire.lock().unwrap() = true;
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..TOGETHER {
        let api = api.clone();
        requests.spawn(async move { api.get("/v1/after").await.map(drop) });
    }
    for done in requests.join_all().await {
        done.unwrap();
    }
    let asked = asked.lock().unwrap();
    let signed_in = asked.iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(signed_in, 2, "{asked:?}");
}

#[tokio::test]
async fn what_is_no_name_is_not_asked_for() {
    let (url, asked) = server(|_, _| (200, "", r#"{"nodes": []}"#.to_owned()));
    let api = api_at(&url);
    for path in ["/v1/nodes/", "/v1/nodes/a%2Fb", "/v1/nodes//validate", "/v1/nodes/..", "/v1/."] {
        assert_eq!(api.get(path).await.unwrap_err().kind(), Kind::NotFound, "{path}");
    }
    api.get("/v1/nodes?owner=a%2Fb").await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_password_that_is_not_accepted_is_told_with_its_origin() {
    let (url, _) = server(|_, _| (401, "", r#"{"error_message": "wrong"}"#.to_owned()));
    let target = Target::at(&url, Some("ann"), Some(Secret::new("hush")), "profile lab").unwrap();
    let error = Api::new(target).unwrap().get("/v1/nodes").await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotAuthorised);
    let told = error.to_string();
    assert!(told.contains("\"ann\"") && told.contains("profile lab gives (wrong)"), "{told}");
}

#[tokio::test]
async fn refusals_say_who_said_what() {
    let (url, _) = server(|asked, _| match asked.line.as_str() {
        "GET /404" => {
            (404, "", r#"{"error_message": {"faultstring": "No such node."}}"#.to_owned())
        }
        "GET /401" => (401, "", String::new()),
        "GET /403" => (403, "", r#"{"error_message": "not yours"}"#.to_owned()),
        "GET /502" => (502, "", "<html>".to_owned()),
        "GET /302" => (302, "Location: http://127.0.0.1:1/\r\n", String::new()),
        "GET /nginx?a=b" => (404, "", "<html>".to_owned()),
        "GET /other" => (404, "", r#"{"detail": "Not Found"}"#.to_owned()),
        "GET /html" => (200, "", "<html>".to_owned()),
        _ => (500, "", String::new()),
    });
    let api = api_at(&url);
    for (path, kind, told) in [
        ("/404", Kind::NotFound, "No such node."),
        ("/401", Kind::NotAuthorised, "asks who you are; give --user"),
        ("/403", Kind::NotAuthorised, "does not allow GET /403 (not yours)"),
        ("/302", Kind::Unreachable, "answers GET /302 with 302 Found; is it the address of an"),
        (
            "/nginx?a=b",
            Kind::Unreachable,
            "answers GET /nginx with 404 Not Found; is it the address",
        ),
        ("/other", Kind::Unreachable, "answers GET /other with 404 Not Found; is it the address"),
        ("/html", Kind::Unreachable, "something else than JSON"),
        ("/502", Kind::Unreachable, "answers 502 Bad Gateway to GET /502"),
        ("/500", Kind::Other, "answers 500 Internal Server Error to GET /500"),
    ] {
        let error = api.get(path).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{path}");
        assert_eq!(error.is_unanswered(), ["/500", "/502"].contains(&path), "{path}");
        assert!(error.to_string().contains(told), "{error}");
    }
}

/// A server that is there says of everything that it is not, if the path before it is wrong.
#[tokio::test]
async fn a_wrong_path_in_the_address_is_not_the_lack_of_a_machine() {
    let (url, asked) = server(|asked, _| match asked.line.as_str() {
        _ if asked.header("authorization").is_empty() => (401, "", String::new()),
        "GET /good/v1" => (200, "", r#"{"id": "v1"}"#.to_owned()),
        _ => (404, "", r#"{"error_message": "No such path."}"#.to_owned()),
    });
    let url = url.replace("http://", "http://ann:secret@");
    let wrong = api_at(&format!("{url}/wrong"));
    for _ in 0..2 {
        let error = wrong.find("/v1/nodes/n").await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unreachable);
        assert!(error.to_string().contains("/wrong answers GET /v1 with 404"), "{error}");
    }
    assert_eq!(wrong.get("/v1/nodes").await.unwrap_err().kind(), Kind::Unreachable);
    // Where there is an API, nobody is asked twice whether there is one.
    asked.lock().unwrap().clear();
    let good = api_at(&format!("{url}/good"));
    assert_eq!(good.find("/v1/nodes/n").await.unwrap(), None);
    assert_eq!(good.find("/v1/nodes/n").await.unwrap(), None);
    let expected = ["GET /good/v1/nodes/n", "GET /good/v1", "GET /good/v1/nodes/n"];
    assert_eq!(*asked.lock().unwrap(), expected);
    assert_eq!(api_at(&url).find("/v1/nodes/n").await.unwrap(), None);
}
