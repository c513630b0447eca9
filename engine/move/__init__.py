"""Moving a topic from one store to another: what is read and written in the place between (docs/adr/0044).

    place    a directory or bucket that both can reach, and what makes one file of it once
    export   from here: the topic's files, digests read back, then OFFER; TAKEN, to take it back
    arrive   to here: what is offered, its records copied into segments of this store, TAKEN

All of it may block, and is run in threads; the loop's part is engine/core/handover.py.
"""
