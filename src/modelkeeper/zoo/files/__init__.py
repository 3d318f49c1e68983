"""Where do the files of models lie, how are they written and read? Folders on a disk, objects in a store."""
