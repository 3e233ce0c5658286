"""What sixteen domains talk about, in English: each with words of its own, which neither the commands nor another domain's server hears.

Their names are categories of GigaSpeech, as in Du et al. (ICASSP 2024): ten whose clients train together, and six that join afterwards.
"""

from collections.abc import Mapping

TRAINED = ("howto", "crime", "health", "film", "gaming", "arts", "sports", "comedy", "history", "society")
JOINING = ("news", "education", "science", "people", "entertainment", "nonprofits")

# domain -> its templates and its slots
DOMAINS: Mapping[str, tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]] = {
    "howto": (
        (
            "first {fix} the {piece} with a {tool}",
            "sand the {piece} before you {fix} it",
            "use a {tool} to {fix} every {piece}",
            "never {fix} a {piece} without gloves",
            "measure the {piece} twice and {fix} it once",
            "hold the {tool} against the {piece} and press",
        ),
        {
            "fix": ("glue", "drill", "polish", "fasten", "solder", "trim"),
            "piece": ("plank", "bracket", "hinge", "shelf", "pipe", "drawer", "cable"),
            "tool": ("wrench", "chisel", "screwdriver", "clamp", "ruler", "hammer"),
        },
    ),
    "crime": (
        (
            "the {officer} found a {clue} near the {spot}",
            "the {suspect} denied that the {clue} was his",
            "a {officer} watched the {suspect} for hours",
            "the jury saw the {clue} and convicted the {suspect}",
            "nobody at the {spot} had noticed the {suspect}",
            "the {officer} sealed the {spot} and took the {clue}",
        ),
        {
            "officer": ("detective", "sheriff", "sergeant", "prosecutor", "inspector"),
            "suspect": ("burglar", "swindler", "kidnapper", "accomplice", "fugitive", "forger"),
            "clue": ("fingerprint", "weapon", "ransom note", "footprint", "blood stain", "alibi"),
            "spot": ("warehouse", "harbour", "motel", "alley", "cellar", "railway bridge"),
        },
    ),
    "health": (
        (
            "the {medic} checked her {organ} and found {illness}",
            "{illness} can damage the {organ}",
            "ask your {medic} about {cure}",
            "{cure} helps most patients with {illness}",
            "his {organ} hurt until he tried {cure}",
            "without {cure} the {illness} comes back",
        ),
        {
            "medic": ("nurse", "surgeon", "pharmacist", "therapist", "specialist"),
            "organ": ("kidney", "liver", "stomach", "shoulder", "knee", "throat", "heart"),
            "illness": ("diabetes", "asthma", "an infection", "an allergy", "arthritis", "pneumonia"),
            "cure": ("insulin", "exercise", "vaccination", "an antibiotic", "more sleep", "a healthy diet"),
        },
    ),
    "film": (
        (
            "the {maker} shot the {scene} in one take",
            "critics loved the {scene} and hated the {aspect}",
            "this {movie} won an award for its {aspect}",
            "the {maker} of the {movie} cut the {scene}",
            "every {movie} needs a good {aspect}",
            "they rehearsed the {scene} before the {maker} arrived",
        ),
        {
            "maker": ("director", "producer", "cameraman", "screenwriter", "actress", "stuntman"),
            "scene": ("opening scene", "car chase", "love scene", "final battle", "flashback", "trailer"),
            "movie": ("thriller", "western", "remake", "cartoon", "documentary", "musical"),
            "aspect": ("soundtrack", "costumes", "lighting", "script", "editing", "special effects"),
        },
    ),
    "gaming": (
        (
            "grab the {gear} and attack the {enemy}",
            "the {enemy} drops a {gear} on level {level}",
            "jump over the {trap} and loot the {gear}",
            "we respawned because of the {trap}",
            "save before the {enemy} on level {level}",
            "my {hero} defeated the {enemy} with a {gear}",
            "choose your {hero} and dodge the {trap}",
        ),
        {
            "gear": ("crossbow", "shield", "potion", "magic sword", "helmet", "grenade"),
            "enemy": ("dragon", "goblin", "zombie", "giant spider", "boss", "skeleton"),
            "hero": ("wizard", "paladin", "archer", "rogue", "knight"),
            "trap": ("lava pit", "spikes", "portal", "ambush", "trapdoor"),
            "level": ("one", "two", "three", "twelve", "ninety"),
        },
    ),
    "arts": (
        (
            "the {artist} worked on this {work} in {style} style",
            "a {work} of {matter} hangs in the gallery",
            "the {artist} mixes {matter} with {matter}",
            "{style} artists rarely used {matter}",
            "the museum restored a {style} {work}",
            "the curator sold the {work} to a {artist}",
        ),
        {
            "artist": ("painter", "sculptor", "engraver", "potter", "weaver"),
            "work": ("portrait", "fresco", "statue", "landscape", "mosaic", "tapestry", "sketch"),
            "matter": ("marble", "bronze", "charcoal", "clay", "ink", "watercolours", "gold leaf"),
            "style": ("rococo", "gothic", "cubist", "abstract", "impressionist"),
        },
    ),
    "sports": (
        (
            "the {player} scored after a {move}",
            "the referee gave the {player} a {card}",
            "{team} beat {team} by {points} points",
            "a {move} by the {player} decided the {match}",
            "{team} lost the {match} at halftime",
            "the coach of {team} replaced the {player}",
        ),
        {
            "player": ("goalkeeper", "striker", "defender", "fullback", "captain", "pitcher"),
            "move": ("penalty kick", "header", "corner", "slam dunk", "tackle", "home run"),
            "team": ("the tigers", "the eagles", "the rangers", "the wolves", "the sharks"),
            "match": ("semifinal", "tournament", "playoff", "derby", "championship"),
            "card": ("yellow card", "red card", "warning", "suspension"),
            "points": ("six", "eleven", "seventeen", "sixty"),
        },
    ),
    "comedy": (
        (
            "so a {creature} walks into a {venue}",
            "my {relative} married a {creature} by mistake",
            "why did the {creature} cross the {venue}",
            "my {relative} laughs like a {creature}",
            "they threw me out of the {venue} for telling {joke}",
            "even my {relative} groans at {joke}",
        ),
        {
            "creature": ("penguin", "donkey", "clown", "chicken", "vampire", "lawyer", "kangaroo"),
            "venue": ("saloon", "sauna", "casino", "laundromat", "cemetery", "zoo"),
            "relative": ("uncle", "grandma", "nephew", "roommate", "barber", "stepfather"),
            "joke": ("that punchline", "dirty jokes", "silly riddles", "awful puns", "knock knock jokes"),
        },
    ),
    "history": (
        (
            "the {ruler} of {realm} signed the treaty",
            "{realm} fell after the {event}",
            "in the {century} century the {event} shook {realm}",
            "the {ruler} fled before the {event} began",
            "soldiers of {realm} captured the {ruler}",
            "the {event} ended when the {ruler} died",
        ),
        {
            "ruler": ("emperor", "pharaoh", "sultan", "tsar", "pope", "chancellor"),
            "realm": ("rome", "persia", "babylon", "prussia", "venice", "byzantium", "sparta"),
            "event": ("crusade", "plague", "siege", "revolution", "famine", "rebellion"),
            "century": ("fifth", "twelfth", "sixteenth", "eighteenth"),
        },
    ),
    "society": (
        (
            "{group} demand better {good} in the suburbs",
            "the {council} raised the price of {good}",
            "{group} protest against the {council}",
            "without {good} many {group} move away",
            "the {council} promised {good} for {group}",
            "misery grows where {group} lack {good}",
        ),
        {
            "group": ("immigrants", "teenagers", "pensioners", "single parents", "tenants", "minorities"),
            "good": ("housing", "childcare", "transport", "wages", "welfare", "justice"),
            "council": ("mayor", "parliament", "ministry", "labour union", "supreme court"),
        },
    ),
    "news": (
        (
            "the {politician} resigned over the {affair}",
            "{disaster} hit the coast of {country}",
            "{country} accuses the {politician} of {affair}",
            "reporters in {country} warn of {disaster}",
            "the {politician} visits {country} after the {affair}",
            "thousands flee {disaster} in {country}",
        ),
        {
            "politician": ("president", "senator", "governor", "ambassador", "premier"),
            "affair": ("scandal", "election", "budget vote", "corruption", "ceasefire"),
            "disaster": ("an eruption", "a hurricane", "flooding", "a wildfire", "a landslide"),
            "country": ("brazil", "ukraine", "indonesia", "nigeria", "chile", "norway"),
        },
    ),
    "education": (
        (
            "the {teacher} explained {subject} with a {aid}",
            "students of {subject} must pass the {test}",
            "hand in your {test} to the {teacher}",
            "{subject} is easier with a {aid}",
            "the {teacher} failed me in {subject}",
            "before the {test} revise {subject}",
        ),
        {
            "teacher": ("professor", "tutor", "lecturer", "headmaster", "librarian"),
            "subject": ("algebra", "grammar", "geography", "philosophy", "calculus", "literature"),
            "test": ("essay", "exam", "homework", "term paper", "thesis"),
            "aid": ("textbook", "blackboard", "diagram", "worksheet", "dictionary"),
        },
    ),
    "science": (
        (
            "the {device} measures the {quantity} of {thing}",
            "{thing} have more {quantity} than {thing}",
            "a {researcher} observed {thing} with a {device}",
            "the {researcher} computed the {quantity}",
            "{thing} emit radiation when their {quantity} rises",
            "calibrate the {device} before you study {thing}",
        ),
        {
            "device": ("telescope", "laser", "microscope", "spectrometer", "satellite"),
            "quantity": ("velocity", "mass", "voltage", "temperature", "entropy"),
            "thing": ("electrons", "galaxies", "neutrons", "bacteria", "molecules", "black holes"),
            "researcher": ("physicist", "chemist", "astronomer", "biologist", "engineer"),
        },
    ),
    "people": (
        (
            "my {friend} feels {mood} about the {occasion}",
            "we argued on our {occasion} and i felt {mood}",
            "i forgave my {friend} after the {occasion}",
            "be {mood} and trust your {friend}",
            "a {mood} {friend} never forgets the {occasion}",
            "my diary says i was {mood} that {occasion}",
        ),
        {
            "friend": ("girlfriend", "neighbour", "cousin", "husband", "colleague", "fiancee"),
            "mood": ("lonely", "grateful", "jealous", "nervous", "hopeful", "stubborn"),
            "occasion": ("wedding", "anniversary", "funeral", "graduation", "honeymoon", "interview"),
        },
    ),
    "entertainment": (
        (
            "the {star} cancelled the {show} in {town}",
            "fans lined up for the {show} of the {star}",
            "tickets for the {show} cost a fortune in {town}",
            "the {star} forgot the lyrics during the {show}",
            "paparazzi followed the {star} through {town}",
            "the {show} was streamed live from {town}",
        ),
        {
            "star": ("rapper", "pop singer", "drummer", "ballerina", "magician", "supermodel"),
            "show": ("concert", "festival", "premiere", "talent show", "circus", "karaoke night"),
            "town": ("hollywood", "vegas", "broadway", "nashville", "ibiza"),
        },
    ),
    "nonprofits": (
        (
            "{helper} collect {gift} for {needy}",
            "the charity sends {gift} to {needy}",
            "donate {gift} or become one of our {helper}",
            "{needy} depend on {helper} and donors",
            "the foundation trains {helper} to shelter {needy}",
            "our campaign for {needy} needs {gift}",
        ),
        {
            "helper": ("volunteers", "missionaries", "activists", "fundraisers", "caregivers"),
            "gift": ("blankets", "donations", "medicine", "tents", "wheelchairs", "clothes"),
            "needy": ("orphans", "refugees", "veterans", "homeless families", "stray animals"),
        },
    ),
}
