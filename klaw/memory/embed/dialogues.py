"""Two everyday conversations, written for Klaw, to measure an embedding model on when there are no texts of one's own.
Data only.

Each is one person's chat with their assistant over some weeks, with questions about it as they are asked later. Nearly
all pairs of a question and a message have nothing in common but the people, the tone and the language, and that is what
recall has to tell a hit from; unrelated sentences of a newspaper would lie farther apart.
"""

from typing import TypeAlias

Dialogue: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""Questions, and the messages that they are asked about."""

_ENGLISH: Dialogue = (
    (
        "What did I decide to give Tom for his birthday?",
        "When is my appointment with the dentist?",
        "Which paint did I choose for the kitchen?",
        "How much did the repair of the bike cost?",
        "What is the name of Laura's new dog?",
        "Where did we want to go in October?",
        "Why was I angry with my landlord?",
        "What did the doctor say about my knee?",
        "Which book did my sister recommend to me?",
        "Who is going to water the plants while I am away?",
        "What do I still have to prepare for the interview?",
        "Which dish did Grandma's guests like best?",
    ),
    (
        "I finally found something for Tom's birthday, a small telescope he can put on the balcony. He'll love it!",
        "That sounds like a wonderful present. Do you want me to remind you to wrap it before Saturday?",
        "The dentist moved my appointment to Thursday at half past nine, so I'll be late for work again.",
        "We looked at paint all afternoon and took the pale green for the kitchen. Mark wanted yellow, of course.",
        "Oh, pale green goes well with wooden shelves. Have you thought about the colour of the curtains?",
        "The man in the bike shop wanted 85 for new brakes and a chain. I think that's fair.",
        "Laura got a puppy last weekend! He is called Biscuit and he has already eaten one of her shoes.",
        "Puppies do that, sadly. It usually gets better when they have something of their own to chew.",
        "We've been thinking about a week in Lisbon in October, when it isn't so hot any more.",
        "My landlord has promised to fix the heating for three weeks now, and nobody has come. I'm so tired of it.",
        "I'm sorry to hear that. If you write to him, keep a copy of the letter and give him a date.",
        "The doctor says the knee is only strained. No running for a month, but swimming is fine.",
        "My sister told me to read that novel about the lighthouse keeper, she couldn't put it down.",
        "Mrs Bauer from the second floor will water the plants, I gave her the spare key yesterday.",
        "The interview is on the fourth. I still have to put together some examples of my work.",
        "You could start with the project you finished in spring, it shows how you lead a team.",
        "Grandma had eleven guests on Sunday. They all wanted the recipe for her plum cake.",
        "I slept badly again last night. Maybe I should stop looking at my phone in bed.",
        "A fixed time for going to bed helps many people, and so does a dark, cool room.",
        "The car made a strange noise on the motorway, like something loose under the seat.",
        "I signed up for the pottery course on Tuesdays. The first evening was a bit chaotic but fun.",
        "How nice! What did you make? Clay can be stubborn at the beginning.",
        "Can you believe it, the neighbours are building a sauna in their garden.",
        "My boss asked me whether I could take over the training of the new colleagues.",
        "We had soup and bread and talked about old times until midnight.",
        "I've saved enough now to pay back what my parents lent me for the move.",
        "Well done! It must feel good to have that off your mind.",
        "The concert was cancelled because the singer has lost her voice.",
        "I'd like to drink less coffee. Three cups before noon is too much, isn't it?",
        "Our daughter lost her first tooth today and insists on writing a letter to the tooth fairy.",
    ),
)

_RUSSIAN: Dialogue = (
    (
        "Что я решил подарить маме на юбилей?",
        "На какое число перенесли приём у врача?",
        "Какие обои мы выбрали в спальню?",
        "Сколько стоил ремонт стиральной машины?",
        "Как зовут нового кота Светы?",
        "Куда мы хотели поехать в сентябре?",
        "Почему я поругался с соседом сверху?",
        "Что сказал тренер про мою спину?",
        "Какой сериал мне советовал Паша?",
        "Кто будет забирать сына из садика, пока я в командировке?",
        "Что мне ещё нужно собрать для визы?",
        "Какой пирог больше всего понравился гостям?",
    ),
    (
        "Придумал, что подарить маме на юбилей: поездку в Суздаль на выходные вместе с тётей Ниной.",
        "Отличная мысль! Хочешь, я составлю список того, что стоит там посмотреть?",
        "Приём у врача перенесли на двадцатое, опять придётся отпрашиваться с работы.",
        "Мы весь вечер выбирали обои в спальню и остановились на серых с тонкой полоской.",
        "Серый цвет хорошо сочетается с деревом. А какие шторы вы думаете повесить?",
        "Мастер взял за стиральную машину четыре тысячи, поменял насос и прочистил слив.",
        "Света взяла из приюта рыжего кота, назвала Персиком. Он первым делом залез на шкаф.",
        "Забавно! Пусть привыкает, первые дни лучше не трогать его слишком часто.",
        "В сентябре хотим на Байкал, пока не похолодало, только билеты пока дорогие.",
        "Сосед сверху второй раз залил нам ванную и делает вид, что ни при чём. Я просто в бешенстве.",
        "Понимаю. Лучше сразу сфотографировать пятна и составить акт с управляющей компанией.",
        "Тренер говорит, что спина болит от сидячей работы, и велел плавать два раза в неделю.",
        "Паша советует посмотреть сериал про полярников, говорит, не мог оторваться.",
        "Пока я в командировке, сына из садика будет забирать бабушка, я ей уже написал доверенность.",
        "Для визы осталось сделать фотографии и взять справку с работы.",
        "Справку обычно готовят дня три, так что попроси её заранее.",
        "На дне рождения было четырнадцать человек, и все просили добавки пирога с капустой.",
        "Опять полночи не спал, наверное, надо перестать пить чай так поздно.",
        "Попробуй ложиться в одно и то же время и проветривать комнату перед сном.",
        "Машина как-то странно гудит на трассе, будто что-то трётся под днищем.",
        "Записался на курсы гитары по вторникам. Пальцы болят ужасно, но мне нравится.",
        "Здорово! Через пару недель пальцы привыкнут, главное — понемногу каждый день.",
        "Представляешь, у нас во дворе наконец починили качели и посадили липы.",
        "Начальница предложила мне взять на себя обучение новичков в отделе.",
        "Сидели на кухне до полуночи, ели картошку с грибами и вспоминали институт.",
        "Накопил наконец, чтобы вернуть брату деньги за переезд.",
        "Молодец! Наверное, сразу стало легче на душе.",
        "Спектакль отменили, потому что заболел главный актёр, деньги обещали вернуть.",
        "Хочу меньше сидеть в телефоне, а то вечера пролетают незаметно.",
        "У дочки выпал первый зуб, теперь ждёт подарок под подушкой.",
    ),
)

DIALOGUES: tuple[Dialogue, ...] = (_ENGLISH, _RUSSIAN)
