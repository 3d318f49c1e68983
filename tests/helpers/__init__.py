"""What tests share: networks, graphs, zoos, services and real databases to try things on."""
