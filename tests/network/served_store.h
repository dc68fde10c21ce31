// A StoreServer on a free loopback port.
#pragma once

#include "rendezvous/server/store_server.h"
#include "tests/network/served.h"

namespace distrun::rendezvous {

using ServedStore = Served<StoreServer, StoreServerOptions>;

}  // namespace distrun::rendezvous
