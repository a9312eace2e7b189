"""The commands of this room: arguments in, tables or JSON out; the work is done by the modules beside this folder."""
