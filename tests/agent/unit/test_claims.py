"""The save-claim guard on labelled answers of models, English and Russian."""

import pytest

from klaw.agent.claims import claims_saving, with_note

CLAIMS_EN = """
I've saved that.
I've saved your preference for green tea.
I have saved this to memory.
Got it! I've remembered that Anna is allergic to peanuts.
I've noted that you prefer short answers.
I have noted your birthday as May 12.
I've stored the gate code.
I have recorded your new address.
Okay, I've memorized it.
I've scheduled a reminder for 9 AM.
I scheduled the report for every Monday.
I've just saved it for you.
I saved that to your notes.
I saved it!
Sure, I've added it to your calendar.
I added this to my memory.
I've updated your profile with the new city.
I have updated core memory.
I've set a reminder for tomorrow at 8.
I set up a daily reminder to water the plants.
I've created an event for Friday.
I've made a note of that.
I wrote it down.
I've written that down.
Saved!
Saved to memory.
Done, saved.
Got it — saved.
Scheduled!
Reminder set for 9 AM.
Your reminder has been set.
Your preference has been saved.
It has been added to your calendar.
It's saved.
That's been noted.
Everything has been recorded.
Memory updated.
Don't worry, I've saved it.
No problem, I've saved your code.
If you need it later, I've saved it to my notes.
**Saved:** your gate code is 4815.
Your sister is Anna. I’ve saved that. Anything else?
Great news! I have successfully stored the details.
We've scheduled your backup for Sunday.
"""

NO_CLAIMS_EN = """
I can remember that for you.
I'll remember that.
I will save it if you like.
Would you like me to save this?
Shall I schedule a reminder?
Have I saved that?
Should I have saved it?
I haven't saved anything.
I have not saved it yet.
I couldn't save that: core memory is full.
I've never saved your password.
Nothing was saved.
I saved it yesterday.
I've already saved that.
As I've saved earlier, your code is 4815.
I saved that last week when you told me.
You saved the file in Downloads.
Anna saved some money.
He said: "I've saved your seat."
The button says “Saved!” when it is done.
Run `git stash`; it prints `Saved working directory`.
> I've saved it
Saved files are in the Downloads folder.
The data is stored in SQLite.
Passwords are saved in the browser.
If I've saved it, you will find it there.
Once I've saved it, I will tell you.
I would have saved it.
I could have saved it to a file.
I wish I had saved it.
Noted.
Got it.
I remember that you like tea.
I remembered that you like tea.
I've saved you some time by sorting the list.
I've saved the best for last.
Many lives have been saved by seat belts.
The meeting is scheduled for Monday.
The train is scheduled to leave at nine.
I noted three bugs in your code.
I've added a test for it.
I've added sugar to the recipe.
I've updated the function below.
I've set the variable to 5.
I've created a table with the results.
Remember to save your work.
Please save it yourself.
You can save it with memory_save.
Let me save that.
To save energy, turn off the light.
Tell me when you have saved it.
I'm not able to schedule reminders.
I don't know whether I've saved it.
What I've saved so far is listed below.
I've read what was saved.
It's saved automatically by the editor every minute.
My notes say that you like tea.
The file could not be saved.
'I have saved it,' said the robot.
```
print("I've saved it")
```
"""

CLAIMS_RU = """
Запомнил!
Запомнила.
Я запомнил.
Хорошо, запомнил.
Понял, сохранил.
Готово, записал в память.
Я сохранил это.
Я сохранила твой адрес.
Я всё записал.
Хорошо, я запомнил, что Аня не ест арахис.
Отлично! Я это запомнила.
Я запланировал напоминание на 9 утра.
Запланировал отчёт на каждый понедельник.
Поставил напоминание на завтра.
Я поставила тебе напоминание на завтра.
Создал напоминание на пятницу.
Установил будильник на 7:00.
Добавил в календарь.
Я добавил это в заметки.
Добавила встречу в календарь.
Занёс в список дел.
Внёс это в память.
Сохранено.
Сохранено!
Всё сохранено.
Записано.
Готово, сохранено в память.
Информация сохранена.
Данные записаны.
Факт добавлен в память.
Напоминание установлено на 9:00.
Напоминание создано.
Память обновлена.
Я обновил твой профиль.
Обновил память.
Взял на заметку.
Отметил себе, что ты любишь чай.
Код от калитки 4815 — запомнил.
Твой день рождения запомнил.
Я зафиксировал твоё предпочтение.
Да, записала.
Теперь я это запомнил навсегда.
Не волнуйся, я всё сохранил.
Если понадобится, я сохранил это в заметки.
Спасибо, сохранил!
Принято, записал.
**Сохранено:** код от калитки 4815.
"""

NO_CLAIMS_RU = """
Я могу это запомнить.
Я запомню.
Запомню!
Сохраню, если хочешь.
Хочешь, я сохраню это?
Сохранить это в память?
Запомнил ли я это?
Я запомнил это?
Я не сохранил это.
Я ещё не записал это.
Ничего не сохранено.
Пока ничего не записал.
Не удалось сохранить: память заполнена.
Я не могу ставить напоминания.
Я уже сохранил это.
Я сохранил это вчера.
Раньше я записал, что ты любишь чай.
Я запомнил это в прошлый раз.
Я записал это, когда ты сказал про Аню.
Антон сохранил файл на диск.
Мама записала рецепт.
Аня запомнила дорогу.
Он пришёл домой, сохранил файл и лёг спать.
Ты сохранил файл в загрузках.
Он сказал: «Я всё сохранил».
На кнопке написано "Сохранено".
Команда печатает `Сохранено`.
> Я запомнил
Данные хранятся в SQLite.
Пароли сохраняются в браузере.
Если я сохранил это, ты найдёшь его там.
Когда я сохраню, скажу.
Я бы сохранил это в файл.
Сохранил бы, да негде.
Я сохранил бы это.
Понял.
Принято.
Ясно, спасибо.
Я помню, что ты любишь чай.
Помню, Аня не ест арахис.
Встреча запланирована на среду.
Поезд отправляется по расписанию.
Не забудь сохранить работу.
Запомни: код 4815.
Запиши это сам.
Сохрани файл перед выходом.
Чтобы сохранить, нажми Ctrl+S.
Я добавил сахар в рецепт.
Я добавил тест.
Обновил функцию ниже.
Я создал таблицу с результатами.
Я поставил переменную в ноль.
Вот что у меня записано о тебе.
Файл не сохранён.
Как я отметил выше, это ошибка.
Я отметил три ошибки в коде.
Сохранённые файлы лежат в загрузках.
Напоминаний нет.
Хочешь, поставлю напоминание?
Скажи, когда сохранишь.
Лёд сохранил форму.
"""


def phrases(text: str) -> list[str]:
    joined, inside = [], False
    for line in text.strip().splitlines():
        if inside:
            joined[-1] += f"\n{line}"
        else:
            joined.append(line)
        inside ^= line.startswith("```")
    return joined


@pytest.mark.parametrize("answer", phrases(CLAIMS_EN) + phrases(CLAIMS_RU))
def test_claims(answer: str) -> None:
    assert claims_saving(answer)
    assert claims_saving(f"Hello there.\n\n{answer}")
    assert claims_saving(f"Вот ответ: 42.\n- пункт\n\n{answer}\nНу вот и всё.")


@pytest.mark.parametrize("answer", phrases(NO_CLAIMS_EN) + phrases(NO_CLAIMS_RU))
def test_no_false_alarms(answer: str) -> None:
    assert not claims_saving(answer)
    assert not claims_saving(f"Hello there.\n\n{answer}\n\nПока!")


def test_there_are_enough_phrases() -> None:
    assert len(phrases(CLAIMS_EN) + phrases(NO_CLAIMS_EN)) >= 100
    assert len(phrases(CLAIMS_RU) + phrases(NO_CLAIMS_RU)) >= 100


def test_the_note_is_in_the_language_of_the_answer() -> None:
    assert with_note("Saved!\n") == "Saved!\n\n(Nothing was saved.)"
    assert with_note("Запомнил, пароль tangerine.") == "Запомнил, пароль tangerine.\n\n(Ничего не было сохранено.)"
    assert not claims_saving(with_note("ok"))
    assert not claims_saving(with_note("да"))


@pytest.mark.parametrize(
    "text", ["", "?", "«", '"' * 999, "я " * 50_000, "I've " * 50_000, "we saved and " * 50_000, "`" * 9999]
)
def test_any_text_is_read(text: str) -> None:
    """Also one on which a careless pattern would never come to an end."""
    assert not claims_saving(text)
    claims_saving(text.replace(" ", "\n"))
