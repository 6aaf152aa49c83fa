// SPDX-License-Identifier: Apache-2.0
//! A TCP proxy in front of a database server that can be interrupted.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Forwards connections until the test ends.
#[derive(Clone, Default)]
pub(crate) struct InterruptibleProxy(Arc<Mutex<ProxyState>>);

#[derive(Default)]
struct ProxyState {
    is_interrupted: bool,
    open: Vec<TcpStream>,
}

impl InterruptibleProxy {
    /// Starts to forward connections to `server`. Returns the address of the proxy.
    pub(crate) fn start(&self, server: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = self.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                proxy.forward(client.unwrap(), server);
            }
        });
        address
    }

    /// Closes all connections, and refuses new ones until [`Self::resume`].
    pub(crate) fn interrupt(&self) {
        let mut state = self.0.lock().unwrap();
        state.is_interrupted = true;
        for connection in state.open.drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Accepts connections again.
    pub(crate) fn resume(&self) {
        self.0.lock().unwrap().is_interrupted = false;
    }

    fn forward(&self, client: TcpStream, server: SocketAddr) {
        let mut state = self.0.lock().unwrap();
        if state.is_interrupted {
            return;
        }
        let server = TcpStream::connect(server).unwrap();
        state.open.push(client.try_clone().unwrap());
        state.open.push(server.try_clone().unwrap());
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || {
                // Ends with the connection.
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}
