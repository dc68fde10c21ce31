// Who speaks on a new connection: known from its first one or two bytes.
#pragma once

#include <string_view>

namespace distrun::rendezvous {

enum class Speaker {
  unknown,  // more bytes are needed
  agent,    // "DRUN…"
  http,     // a method: an upper-case letter, "GET ", "DELETE "
  store,    // anything else: TCPStore's requests begin with a small number (wire/tcpstore.h)
};

Speaker speaker_of(std::string_view first_bytes);

}  // namespace distrun::rendezvous
