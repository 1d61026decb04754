"""Where does each microsecond of a request and of a streamed chunk go? Room by room, without sockets."""
