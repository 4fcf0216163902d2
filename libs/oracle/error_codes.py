"""Oracle's error codes, by the reader's next step.

(Oracle Database Error Messages; python-oracledb documentation, "Troubleshooting Errors", for DPY numbers.)
"""

import enum
from typing import Final


class Treatment(enum.Enum):
    """The step after an error. No treatment ends a result early, or passes redo over."""

    CHOOSE_LOGS = "choose_logs"
    """A log was switched, archived, reused or deleted meanwhile: choose the logs again, from the last row's SCN on."""
    NEW_SESSION = "new_session"
    """LogMiner's session is gone: start another one."""
    SMALLER_WINDOW = "smaller_window"
    """A fault of LogMiner's own, or its memory: connect again, and mine less redo at once."""
    OTHER_INCARNATION = "other_incarnation"
    """The SCN is none that the database has: read its incarnation again."""
    UNDO_GONE = "undo_gone"
    """Rows as of an SCN are no longer to be had: read them as of a newer one."""
    DEFINITION_CHANGED = "definition_changed"
    """The table was changed or dropped since: read its definition again."""
    RECONNECT = "reconnect"
    """The connection or the instance is away: try again, with growing pauses."""
    OTHER_HOST = "other_host"
    """A standby, or a database that is not open: another host of the list may be the primary."""
    AS_TEXT = "as_text"
    """The driver has no room for a value: ask for its text."""
    CREDENTIALS = "credentials"
    """Halt at once: each further try counts towards a lock of the account."""
    PRIVILEGE = "privilege"
    """Halt: a grant is missing."""
    THICK_MODE = "thick_mode"
    """Halt: the driver's thin mode cannot do it."""
    HALT = "halt"
    """Halt: no try again helps."""


_CODES: Final = {
    Treatment.CHOOSE_LOGS: (308, 310, 334, 1284, 1285, 1286, 1289, 1291, 1292, 1368, 27037),
    Treatment.NEW_SESSION: (1306, 1307, 1323, 1353),
    Treatment.SMALLER_WINDOW: (600, 700, 7445, 1332, 1327, 1341, 4030, 4031, 4036, 27102),
    Treatment.OTHER_INCARNATION: (1281, 8181, 8180),
    Treatment.UNDO_GONE: (1555, 22924, 30052),
    Treatment.DEFINITION_CHANGED: (1466, 8103, 942, 1410),
    Treatment.RECONNECT: (
        *(28, 60, 1012, 1013, 1033, 1034, 1089, 1090, 1092, 2396, 2399, 3113, 3114, 3135, 12153, 12170, 12514, 12516),
        *(12519, 12520, 12521, 12528, 12537, 12541, 12543, 12545, 12570, 12571, 12592, 25408, 16456),
    ),
    Treatment.OTHER_HOST: (16000, 16004, 1219),
    Treatment.AS_TEXT: (1406, 1801, 1878, 1882),
    Treatment.CREDENTIALS: (1017, 28000, 28001),
    Treatment.PRIVILEGE: (904, 1031, 41900),
    Treatment.THICK_MODE: (12660,),
    Treatment.HALT: (1295, 1371, 1343, 1344, 1346, 1347, 44609, 44613, 65040, 65024),
}
_OF_ORACLE: Final = {code: treatment for treatment, codes in _CODES.items() for code in codes}
_OF_DRIVER: Final = {
    **dict.fromkeys((4011, 4024, 6000, 6001, 6002, 6003, 6005), Treatment.RECONNECT),
    **dict.fromkeys((3001, 3010, 3012, 3015), Treatment.THICK_MODE),
}


def treatment_of(code: int | None) -> Treatment | None:
    """The step after an error of the database (``ORA-``); None: a code that is not in the table."""
    return None if code is None else _OF_ORACLE.get(code)


def treatment_of_driver(code: int) -> Treatment | None:
    """The step after an error of python-oracledb itself (``DPY-``); None: a code that is not in the table."""
    return _OF_DRIVER.get(code)


REMEDIES: Final = {
    1295: "the log is another database's: check the address, or re-snapshot the source",
    1371: "LogMiner's dictionary is missing: mine in the root, or open the database",
    1343: "the redo is corrupt: restore the log that the message names; nothing is ever skipped",
    1344: "the redo is corrupt: restore the log that the message names; nothing is ever skipped",
    1346: "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA; then re-snapshot the source: rows of since lack columns",
    1347: "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA; then re-snapshot the source: rows of since lack columns",
}
"""The statement or step that helps after an error that halts."""
